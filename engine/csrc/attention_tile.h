// What the attention kernel of an instruction set computes at once: some queries over one page of a cache.
#pragma once

#include <cstdint>

namespace ktdesk {

// Cached rows hold a multiple of this many elements, zeros behind the last of a head, so that kernels need no
// tails. The same for a query in a kernel's scratch.
constexpr int64_t kCachePadding = 16;

constexpr int64_t kMaxTileRows = 8;

// Keys, values and the next keys of a tile fit the first-level cache together, at heads of 128 16-bit
// numbers.
constexpr int64_t kMaxTilePositions = 32;

static constexpr int64_t padded_length(int64_t length) {
    return (length + kCachePadding - 1) / kCachePadding * kCachePadding;
}

// The softmax of some query rows, as far as it has come.
struct MixedRows {
    float* maxima;  // (rows): the largest score, or -infinity
    float* sums;    // (rows): of exp(score - maximum)
    float* mixed;   // (rows, padded value length): of exp(score - maximum) * value
};

// num_positions rows of a cache, `stride` bytes apart.
struct CachedTile {
    const uint8_t* rows;
    int64_t stride;
    int64_t length;  // padded, in elements
};

struct AttentionTile {
    const float* queries;  // (num_rows, keys.length), scaled, a cache line aligned
    int64_t num_rows;      // 1, 2, 4 or 8
    CachedTile keys, values;
    int64_t num_positions;  // 1..kMaxTilePositions, all of them written
    // What memory is asked for in good time: the values while keys are read, the keys of the next tile (or
    // null) while values are. Evenly spread, they arrive unnoticed; all at once, they would be waited for.
    bool fetch_values;
    const uint8_t* next_keys;
    const int32_t* begins;  // (num_rows): row r sees the positions begins[r]..ends[r]-1 of the tile
    const int32_t* ends;
    float soft_cap;  // score = cap * tanh(score / cap); 0 is none
    MixedRows state;
};

// Adds the tile to the state of its rows. A row's state after it is the same whatever rows and whatever
// positions that it does not see are computed with it.
using AttendTile = void (*)(const AttentionTile& tile);

// total becomes the softmax over what part and total have seen. length: padded, of a value.
using MergeRows = void (*)(const MixedRows& part, const MixedRows& total, int64_t num_rows, int64_t length);

// out[0..length-1] = mixed / (sum + exp(sink - maximum)); sink: -infinity for none.
using FinishRow = void (*)(const MixedRows& row, float sink, float* out, int64_t length);

// Writes a row of a cache: padded_length(length) elements.
using StoreRow = void (*)(const float* x, int64_t length, uint8_t* row);

}  // namespace ktdesk
