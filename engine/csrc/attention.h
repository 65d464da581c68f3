// Causal attention of new tokens over a paged cache, which already holds their own keys and values.
#pragma once

#include <cstdint>

#include "quants.h"
#include "worker_pool.h"

namespace ktdesk {

// Keys or values of one layer: head h of the token at `offset` in page p is the row that starts at byte
// p * page_stride + h * head_stride + offset * row_stride of data. It holds padded_length(length) elements
// (attention_tile.h) of its type: F32, F16, BF16 or Q8_0.
struct CachedRows {
    WeightType type;
    uint8_t* data;
    int64_t page_stride, head_stride, row_stride;
    int64_t length;  // D
};

// Where the tokens of a batch stand.
struct PagedContext {
    int64_t num_tokens, page_size;
    const int32_t*
        page_tables;  // (sequences, max_pages): the page that holds each stretch of page_size tokens
    int64_t max_pages;
    const int32_t* sequences;  // (num_tokens): row of page_tables
    const int32_t* positions;  // (num_tokens): a token sees positions 0..its own
};

struct Attention {
    const float* queries;     // (num_tokens, num_heads, keys.length)
    CachedRows keys, values;  // of one type
    float* out;               // (num_tokens, num_heads, values.length)
    int64_t num_heads, num_kv_heads;
    PagedContext context;

    float scale;
    int64_t window;         // sees this many last positions, its own included; 0 sees all
    float soft_cap;         // score = cap * tanh(score / cap); 0 is none
    const float* sinks;     // (num_heads): one more score in the denominator, without a value; or null
    bool on_tiles = false;  // in bfloat16; decided by the pool
};

// A token's result is the same, bit for bit, in whatever batch it comes and on however many threads: all of
// its instruction set's rows go through one kernel.
void attention(WorkerPool& pool, const Attention& a);

// Writes x (num_tokens, num_heads, rows.length) to where the tokens stand.
void store_rows(WorkerPool& pool, const CachedRows& rows, const PagedContext& context, int64_t num_heads,
                const float* x);

}  // namespace ktdesk
