// Causal attention of new tokens over a paged cache, which already holds their own keys and values.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

// Keys or values of one layer: element d of head h of the token at `offset` in page p is
// data[p * page_stride + offset * token_stride + h * head_stride + d].
struct PagedRows {
    const float* data;
    int64_t page_stride, token_stride, head_stride;
    int64_t length;  // D
};

struct Attention {
    const float* queries;  // (num_tokens, num_heads, keys.length)
    PagedRows keys, values;
    float* out;  // (num_tokens, num_heads, values.length)
    int64_t num_tokens, num_heads, num_kv_heads;

    int64_t page_size;
    const int32_t*
        page_tables;  // (sequences, max_pages): the page that holds each stretch of page_size tokens
    int64_t max_pages;
    const int32_t* sequences;  // (num_tokens): row of page_tables
    const int32_t* positions;  // (num_tokens): a token sees positions 0..its own

    float scale;
    int64_t window;      // sees this many last positions, its own included; 0 sees all
    float soft_cap;      // score = cap * tanh(score / cap); 0 is none
    const float* sinks;  // (num_heads): one more score in the denominator, without a value; or null
};

// A token's result is the same in whatever batch it comes.
void attention(WorkerPool& pool, const Attention& a);

}  // namespace ktdesk
