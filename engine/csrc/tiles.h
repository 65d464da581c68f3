// Products on tile registers (AMX): panels times blocks of 16 rows of activations.
//
// Where the row kernels are for one token or a few, tiles are for many: a panel is unpacked once and
// multiplied with all rows. There are two forms of numbers:
//   integers   of 16 bits, rows with one scale each, of weights as of activations. A number is two bytes, and
//              a product of two is four products of bytes, of which the least one is left out where it says
//              nothing. Sums are exact. As exact as the kernels on vectors, or more.
//   bfloat16   eight bits of each number, sums in float32. One product instead of the three or four of
//              which two take the time of one, but what channels that are far larger than the others
//              lose of their last bits drowns those.
#pragma once

#include <cstdint>

#include "quants.h"

namespace ktdesk {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileValues = 32;
constexpr int64_t kTileStride = 64;  // bytes of a row of a tile
constexpr int64_t kTileBytes = kTileRows * kTileStride;

// Values that lie together: two tiles of bytes (of 64 values), or of bfloat16 (of 32).
constexpr int64_t kTileStep = 64;
constexpr int64_t kTileStepBytes = 2 * kTileBytes;
// Behind the values of a block: what its rows are, four numbers of 32 bits for each.
constexpr int64_t kTileRowFacts = 4 * kTileStride;

static constexpr int64_t num_tile_steps(int64_t length) { return (length + kTileStep - 1) / kTileStep; }

static constexpr int64_t num_tile_blocks(int64_t num_rows) { return (num_rows + kTileRows - 1) / kTileRows; }

// block_rows: 16, or 1 for rows that are only kept to be copied to where their products are made.
static constexpr int64_t tile_block_bytes(int64_t length, int64_t block_rows = kTileRows) {
    const int64_t facts =
        (block_rows * kTileRowFacts / kTileRows + kTileStride - 1) / kTileStride * kTileStride;
    return num_tile_steps(length) * block_rows * kTileStepBytes / kTileRows + facts;
}

static constexpr int64_t tile_rows_bytes(int64_t num_rows, int64_t length) {
    return num_tile_blocks(num_rows) * tile_block_bytes(length);
}

// Rows of activations as the kernels of one form want them: blocks of 16 rows, kTileStep values of them at a
// time. Rows that fill up the last block may hold anything.
struct TileRows {
    uint8_t* data;     // at a cache line
    int64_t num_rows;  // without those that fill up
    int64_t length;    // a multiple of 32
    int64_t block_rows = kTileRows;

    int64_t tile_bytes() const { return block_rows * kTileStride; }
    int64_t num_tiles() const { return 2 * num_tile_steps(length); }
    int64_t block_bytes() const { return tile_block_bytes(length, block_rows); }
    uint8_t* block(int64_t row) const { return data + row / block_rows * block_bytes(); }
    // A row's part of the first tile of its block, and its first fact, of which the others are block_rows on.
    uint8_t* row(int64_t row) const { return block(row) + row % block_rows * kTileStride; }
    uint8_t* facts(int64_t row) const {
        return block(row) + num_tiles() * tile_bytes() + row % block_rows * 4;
    }
};

// Sums of integers: 128 * 255 + 128 * 128 times the length must fit 32 bits.
constexpr int64_t kMaxTileLength = 40960;

// A panel (panels.h) of one of the matrices that are multiplied together, and where its products go.
struct TilePanel {
    const uint8_t* data;  // for F32: 16 rows of floats, `length` apart
    int64_t column;       // row t's products go to outputs[t] + column
    int64_t num_columns;  // 1..16: rows of the panel that are there
};

// outputs[t][column + n] = row n of each panel times row t, for all rows. scratch: tile_scratch_bytes, at a
// cache line. A row's results do not depend on the other rows.
using MultiplyTiles = void (*)(const TilePanel* panels, int64_t num_panels, const TileRows& rows,
                               float* const* outputs, uint8_t* scratch);

constexpr int64_t kMaxTilePanels = 8;

// What unpacked panels take of a thread's second-level cache, with room for single tiles.
static constexpr int64_t tile_scratch_bytes(int64_t num_panels, int64_t length) {
    return (num_panels + num_panels % 2) * num_tile_steps(length) * kTileStepBytes + 16 * 1024;
}

struct TileKernels {
    // Loads the calling thread's tile configuration. Once a thread, before it multiplies.
    void (*configure)();
    void (*release)();

    // Writes x, which is row `row`.
    void (*store_row)(const float* x, const TileRows& rows, int64_t row);

    // By WeightType; null where the type has no panels (their rows are unpacked, and go as F32). All panels
    // of a call have one type and length.
    MultiplyTiles multiply[kNumWeightTypes];
};

}  // namespace ktdesk
