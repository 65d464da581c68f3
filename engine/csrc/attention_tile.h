// What the attention kernel of an instruction set computes at once: some queries over one page of a cache.
#pragma once

#include <cstdint>

#include "quants.h"

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

// What memory is asked for in good time, evenly spread: all at once, it would be waited for. Pointers may be
// null.
//
// Lines on their way to the first-level cache are few; alone they read a core's memory at half its speed. So
// each line is asked for twice: into the second-level cache while the tile before the last is computed, and
// from there into the first.
struct TileAhead {
    bool values;                               // to the first level, of this tile, while its keys are read
    const uint8_t* next_keys;                  // to the first level, while values are read
    const uint8_t *later_keys, *later_values;  // to the second level
};

struct AttentionTile {
    const float* queries;  // (num_rows, keys.length), scaled, a cache line aligned
    int64_t num_rows;      // 1, 2, 4 or 8
    CachedTile keys, values;
    int64_t num_positions;  // 1..kMaxTilePositions, all of them written
    TileAhead ahead;
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

// ---- On tile registers (AMX), in bfloat16 with sums in float32
//
// A number is two bfloat16, what the first leaves being the second: 16 bits. A product is three then, without
// that of both seconds. One bfloat16 each would cost a model as much as all else that is rounded.

// Query rows computed at once.
constexpr int64_t kTileQueries = 16;

// A stretch is up to this many positions of one page, from a multiple of it on.
constexpr int64_t kStretchPositions = 64;

static constexpr int64_t num_key_steps(int64_t padded) { return (padded + 31) / 32; }

// What 16 queries take, what the keys of a stretch take, and what its values take.
static constexpr int64_t tile_query_bytes(int64_t padded_keys) {
    return 2 * num_key_steps(padded_keys) * 1024;
}
static constexpr int64_t tile_key_bytes(int64_t padded_keys) {
    return 2 * num_key_steps(padded_keys) * kStretchPositions * 64;
}
static constexpr int64_t tile_value_bytes(int64_t padded_values) {
    return 2 * padded_values * kStretchPositions * 2;
}

// Keys and values of a stretch. Positions from num_positions on count as zeros: nobody may have written them.
struct CachedStretch {
    CachedTile keys, values;
    int64_t num_positions;
    bool is_whole;              // memory for kStretchPositions is there
    const uint8_t* later_keys;  // what is asked for meanwhile: of the next stretch, or null
};

// A stretch as tiles want it. Keys are tiles of 16 positions by 32 values: rows key_row bytes apart, those of
// the next positions key_block further, those of the next values key_step. Values are tiles of pairs of
// positions by 16 values, two for the 64 positions. The second bfloat16 of each lie alike, elsewhere; null
// where the first are the numbers.
struct TileStretch {
    const uint8_t* keys;
    int64_t key_row, key_block, key_step;
    const uint8_t* values;
    const uint8_t *key_rests, *value_rests;
};

// 16 queries over a stretch.
struct TileQueries {
    const uint8_t* queries;               // from pack_queries
    int64_t num_key_steps, value_length;  // padded
    int64_t first_position;               // of the stretch
    int64_t num_positions;                // in it
    const int32_t *begins, *ends;  // (16): row r sees the positions begins[r]..ends[r]-1 of the context
    bool see_all;                  // every row sees all of kStretchPositions
    float soft_cap;
    MixedRows state;
    const uint8_t* later_values;  // what is asked for meanwhile, or null
    int64_t later_bytes;
    uint8_t* scratch;  // kTileScratchBytes, at a cache line
};

constexpr int64_t kTileScratchBytes = 8 * 1024;  // scores and shares

// A row's state does not depend on the other rows. attend needs the thread's tile configuration (tiles.h).
struct TileAttention {
    // queries: 16 rows, scaled, `length` (padded) floats apart.
    void (*pack_queries)(const float* queries, int64_t length, uint8_t* tiles);

    // By WeightType of the cache. keys and values: where to put tiles, at a cache line. Rows that are tiles
    // as they lie in the cache stay there.
    TileStretch (*pack_stretch[kNumWeightTypes])(const CachedStretch& stretch, uint8_t* keys,
                                                 uint8_t* values);

    void (*attend)(const TileStretch& stretch, const TileQueries& queries);
};

// Writes a row of a cache: padded_length(length) elements.
using StoreRow = void (*)(const float* x, int64_t length, uint8_t* row);

}  // namespace ktdesk
