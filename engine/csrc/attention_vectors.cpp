// A split of a piece on vectors: tiles of up to 32 positions of a page, times up to 8 rows.
#include "attention_state.h"

namespace ktdesk {

namespace {

// What the rows of a tile's height see. The windows of tokens that follow each other overlap: whatever lies
// in `any` is seen by one of them. Worked out once a piece: the divisions behind it took a seventh of a
// decode step's attention when each tile did them.
struct RowViews {
    Span any;
    Span rows[kMaxTileRows];
};

int64_t num_views(int64_t num_rows) { return (num_rows + kMaxTileRows - 1) / kMaxTileRows; }

// They lie behind the queries.
RowViews* views_of(const PieceWork& work) {
    return reinterpret_cast<RowViews*>(work.memory +
                                       padded_rows(work.a, work.piece.num_rows) * key_floats(work.a));
}

RowViews make_views(const PieceWork& work, int64_t first) {
    constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
    RowViews views = {{kLast, 0}, {}};
    const int64_t num_rows = std::min(work.piece.num_rows - first, kMaxTileRows);
    for (int64_t row = 0; row < num_rows; ++row) {
        const Span own = visible(work.a, token_of(work.a, work.piece, first + row));
        views.rows[row] = own;
        views.any = {std::min(views.any.begin, own.begin), std::max(views.any.end, own.end)};
    }
    return views;
}

// The end of the tile that position lies in: tiles end with pages.
int64_t tile_end(const Attention& a, int64_t position) {
    const int64_t offset = offset_in_page(a, position);
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
    const RowViews& views = views_of(work)[first / kMaxTileRows];
    const int64_t num_rows = std::min(piece.num_rows - first, kMaxTileRows);
    const Span seen = views.any & span;
    if (seen.begin >= seen.end) return;
    int32_t begins[kMaxTileRows] = {}, ends[kMaxTileRows] = {};
    for (int64_t row = 0; row < num_rows; ++row) {
        const Span own = views.rows[row] & seen;
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
    constexpr int64_t kViewFloats = sizeof(RowViews) / sizeof(float);
    return padded_length(padded_rows(a, num_rows) * key_floats(a) + num_views(num_rows) * kViewFloats);
}

void prepare_vectors(const PieceWork& work) {
    const int64_t num_rows = work.piece.num_rows;
    gather_queries(work.a, work.piece, 0, padded_rows(work.a, num_rows), work.memory);
    for (int64_t view = 0; view < num_views(num_rows); ++view)
        views_of(work)[view] = make_views(work, view * kMaxTileRows);
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
