// A split of a piece on vectors: tiles of up to 32 positions of a page, times up to 8 rows.
#include "attention_state.h"

namespace ktdesk {

namespace {

// The end of the tile that position lies in: tiles end with pages.
int64_t tile_end(const Attention& a, int64_t position) {
    const int64_t offset = position % a.context.page_size;
    const int64_t end = std::min((offset / kMaxTilePositions + 1) * kMaxTilePositions, a.context.page_size);
    return position - offset + end;
}

// What to ask memory for during the tile that ends at `end`, where this thread goes on up to `last`.
TileAhead ahead_of(const PieceWork& work, int64_t end, int64_t last) {
    const auto& [a, kernels, piece, memory] = work;
    const bool are_apart = a.values.data != a.keys.data;
    const int64_t later = end < last ? tile_end(a, end) : last;
    return {are_apart, end < last ? tile_at(a, a.keys, piece, end).rows : nullptr,
            later < last ? tile_at(a, a.keys, piece, later).rows : nullptr,
            later < last && are_apart ? tile_at(a, a.values, piece, later).rows : nullptr};
}

// Rows first.. of a tile's height over `span`, which lies in one tile.
void attend_tile(const PieceWork& work, Span span, int64_t first, const MixedRows& state,
                 const TileAhead& ahead) {
    const auto& [a, kernels, piece, queries] = work;
    int32_t begins[kMaxTileRows] = {}, ends[kMaxTileRows] = {};
    const int64_t num_rows = std::min(piece.num_rows - first, kMaxTileRows);
    Span seen = {span.end, span.begin};
    for (int64_t row = 0; row < num_rows; ++row) {
        const Span own = visible(a, token_of(a, piece, first + row)) & span;
        if (own.begin < own.end) seen = {std::min(seen.begin, own.begin), std::max(seen.end, own.end)};
    }
    if (seen.begin >= seen.end) return;
    for (int64_t row = 0; row < num_rows; ++row) {
        const Span own = visible(a, token_of(a, piece, first + row)) & seen;
        begins[row] = static_cast<int32_t>(std::min(own.begin, seen.end) - seen.begin);
        ends[row] = static_cast<int32_t>(std::max(own.end, seen.begin) - seen.begin);
    }
    kernels.attend_tile[a.keys.type](
        {queries + first * key_floats(a), vector_rows(num_rows), tile_at(a, a.keys, piece, seen.begin),
         tile_at(a, a.values, piece, seen.begin), seen.end - seen.begin, first == 0 ? ahead : TileAhead{},
         begins, ends, a.soft_cap, from_row(a, state, first)});
}

}  // namespace

int64_t attention_vector_floats(const Attention& a, int64_t num_rows) {
    return padded_rows(a, num_rows) * key_floats(a);
}

void prepare_vectors(const PieceWork& work) {
    gather_queries(work.a, work.piece, 0, padded_rows(work.a, work.piece.num_rows), work.memory);
}

void split_on_vectors(const PieceWork& work, int64_t index, int64_t last, const MixedRows& state) {
    const Span span = work.piece.split(index);
    clear(work.a, state, work.piece.num_rows);
    for (int64_t begin = span.begin; begin < span.end; begin = tile_end(work.a, begin)) {
        const int64_t end = tile_end(work.a, begin);
        const TileAhead ahead = ahead_of(work, end, last);
        for (int64_t row = 0; row < work.piece.num_rows; row += kMaxTileRows)
            attend_tile(work, Span{begin, end} & span, row, state, ahead);
    }
}

}  // namespace ktdesk
