// Products on tile registers (AMX): panels times blocks of 16 rows of activations in bfloat16.
//
// Where the row kernels are for one token or a few, tiles are for many: a panel is unpacked to bfloat16 once
// and multiplied with all rows. Sums are in float32 over the whole length.
#pragma once

#include <cstdint>

#include "quants.h"

namespace ktdesk {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileValues = 32;
constexpr int64_t kTileStride = 64;  // bytes of a row of a tile
constexpr int64_t kTileBytes = kTileRows * kTileStride;

// Rows are kept 2^90 times as large: unpacked codes are 2^112 times as small (isa/tile_unpack.inl), and
// products of both stay in the middle of what float32 holds.
constexpr int kTileScaleExponent = 90;

// Rows of activations as tiles want them: blocks of 16 rows; in a block, for each 32 values, one tile of 1
// KB: 16 rows of 32 bfloat16. The values of each quad lie in the order 0, 2, 1, 3, which is the one that
// unpacked bytes have. They are 2^kTileScaleExponent times as large. Rows that fill up the last block may
// hold anything.
struct TileRows {
    uint16_t* data;    // at a cache line
    int64_t num_rows;  // without those that fill up
    int64_t length;    // a multiple of 32
};

static constexpr int64_t num_tile_blocks(int64_t num_rows) { return (num_rows + kTileRows - 1) / kTileRows; }

static constexpr int64_t tile_rows_bytes(int64_t num_rows, int64_t length) {
    return num_tile_blocks(num_rows) * kTileRows * length * 2;
}

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
    return (num_panels + num_panels % 2) * length * 2 * kTileRows + 16 * 1024;
}

struct TileKernels {
    // Loads the calling thread's tile configuration. Once a thread, before it multiplies.
    void (*configure)();
    void (*release)();

    // Writes x[0..count), which are the values first.. of row `row`. first and count: multiples of 16.
    void (*store_row)(const float* x, int64_t first, int64_t count, const TileRows& rows, int64_t row);

    // By WeightType; null where the type has no panels (their rows are unpacked, and go as F32). All panels
    // of a call have one type and length.
    MultiplyTiles multiply[kNumWeightTypes];
};

}  // namespace ktdesk
