// How the softmax of a piece lies in memory, and what vectors and tiles need of a piece.
#pragma once

#include <algorithm>
#include <limits>

#include "attention.h"
#include "attention_plan.h"
#include "attention_tile.h"
#include "worker_pool.h"

namespace ktdesk {

// A tile of the vector kernels has 1, 2, 4 or 8 rows.
static inline int64_t vector_rows(int64_t num_rows) { return num_rows > 4 ? 8 : num_rows > 2 ? 4 : num_rows; }

static inline int64_t padded_rows(const Attention& a, int64_t num_rows) {
    const int64_t height = a.on_tiles ? kTileQueries : kMaxTileRows, rest = num_rows % height;
    if (a.on_tiles) return num_rows + (rest ? height - rest : 0);
    return num_rows - rest + vector_rows(rest);
}

static inline int64_t key_floats(const Attention& a) { return padded_length(a.keys.length); }
static inline int64_t value_floats(const Attention& a) { return padded_length(a.values.length); }

// The mixed values first: they start at a cache line.
static inline int64_t state_floats(const Attention& a, int64_t num_rows) {
    return padded_length(padded_rows(a, num_rows) * (value_floats(a) + 2));
}

static inline MixedRows state_in(const Attention& a, float* memory, int64_t num_rows) {
    float* maxima = memory + padded_rows(a, num_rows) * value_floats(a);
    return {maxima, maxima + padded_rows(a, num_rows), memory};
}

static inline MixedRows from_row(const Attention& a, const MixedRows& state, int64_t row) {
    return {state.maxima + row, state.sums + row, state.mixed + row * value_floats(a)};
}

static inline void clear(const Attention& a, const MixedRows& state, int64_t num_rows) {
    const int64_t rows = padded_rows(a, num_rows);
    std::fill_n(state.maxima, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(state.sums, rows, 0.0f);
    std::fill_n(state.mixed, rows * value_floats(a), 0.0f);
}

// Rows first..first+count-1 of a piece, scaled: queries (count, key_floats). Rows past the last are zero.
void gather_queries(const Attention& a, const Piece& piece, int64_t first, int64_t count, float* queries);

// Divisions of 32 bits take half the time of those of 64, and each tile needs some.
static inline int64_t page_of(const Attention& a, int64_t position) {
    return static_cast<uint32_t>(position) / static_cast<uint32_t>(a.context.page_size);
}
static inline int64_t offset_in_page(const Attention& a, int64_t position) {
    return static_cast<uint32_t>(position) % static_cast<uint32_t>(a.context.page_size);
}

// Where the keys or values of a position lie.
CachedTile tile_at(const Attention& a, const CachedRows& rows, const Piece& piece, int64_t position);

// A piece on one thread, in memory of its own.
struct PieceWork {
    const Attention& a;
    const RowKernels& kernels;
    const Piece& piece;
    float* memory;  // scratch_floats of it, at a cache line
};

// On vectors, and on tiles: what a piece of so many rows needs as scratch, what is done before its splits,
// and the state of one split, last being up to where this thread goes on after it.
int64_t attention_vector_floats(const Attention& a, int64_t num_rows);
void prepare_vectors(const PieceWork& work);
void split_on_vectors(const PieceWork& work, int64_t index, int64_t last, const MixedRows& state);

int64_t attention_tile_floats(const Attention& a, int64_t num_rows);
void prepare_tiles(const PieceWork& work);
void split_on_tiles(const PieceWork& work, int64_t index, int64_t last, const MixedRows& state);

}  // namespace ktdesk
