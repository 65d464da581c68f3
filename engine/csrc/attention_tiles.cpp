// A split of a piece on tile registers: stretches of up to 64 positions of a page become tiles once, for all
// rows of the piece.
#include "attention_state.h"

namespace ktdesk {

namespace {

constexpr int64_t kFloat = sizeof(float);

// What the rows of 16 queries see.
struct BlockView {
    int64_t first_begin, last_begin, first_end, last_end;

    bool any_of(Span s) const { return first_begin < s.end && last_end > s.begin; }
    bool all_of(Span s) const { return last_begin <= s.begin && first_end >= s.end; }
};

// A thread's scratch. Everything lies at a cache line.
struct TileMemory {
    int64_t num_blocks;
    uint8_t *queries, *keys, *values, *scratch;
    int32_t *begins, *ends;  // (rows)
    BlockView* views;
    uint8_t* end;

    TileMemory(const Attention& a, int64_t num_rows, float* memory)
        : num_blocks(padded_rows(a, num_rows) / kTileQueries),
          queries(reinterpret_cast<uint8_t*>(memory)),
          keys(queries + num_blocks * tile_query_bytes(key_floats(a))),
          values(keys + tile_key_bytes(key_floats(a))),
          scratch(values + tile_value_bytes(value_floats(a))),
          begins(reinterpret_cast<int32_t*>(scratch + kTileScratchBytes)),
          ends(begins + num_blocks * kTileQueries),
          views(reinterpret_cast<BlockView*>(ends + num_blocks * kTileQueries)),
          end(reinterpret_cast<uint8_t*>(views + 2 * num_blocks)) {}
};

// The stretch of a split that `position` lies in. Where it begins and ends depends on no query.
Span stretch_at(const Attention& a, Span whole_split, int64_t position) {
    const int64_t page = position / a.context.page_size * a.context.page_size;
    const int64_t begin = page + (position - page) / kStretchPositions * kStretchPositions;
    const int64_t end = std::min(begin + kStretchPositions, page + a.context.page_size);
    return Span{begin, end} & whole_split;
}

CachedStretch cached(const PieceWork& work, Span stretch, const uint8_t* later_keys) {
    const auto& [a, kernels, piece, memory] = work;
    return {tile_at(a, a.keys, piece, stretch.begin), tile_at(a, a.values, piece, stretch.begin),
            std::min(stretch.end, piece.seen.end) - stretch.begin,
            stretch.begin % a.context.page_size + kStretchPositions <= a.context.page_size, later_keys};
}

// later_values: of the next stretch, for which all rows ask together; or null.
void attend_stretch(const PieceWork& work, const TileMemory& tiles, const TileStretch& packed, Span stretch,
                    const uint8_t* later_values, const MixedRows& state) {
    const Attention& a = work.a;
    const Span whole = {stretch.begin, stretch.begin + kStretchPositions};
    const int64_t later_bytes = kStretchPositions * a.values.row_stride / tiles.num_blocks / 64 * 64;
    for (int64_t block = 0; block < tiles.num_blocks; ++block) {
        const BlockView& view = tiles.views[block];
        const int64_t first = block * kTileQueries;
        if (!view.any_of(stretch)) continue;
        work.kernels.tile_attention->attend(
            packed, {tiles.queries + block * tile_query_bytes(key_floats(a)), num_key_steps(key_floats(a)),
                     value_floats(a), stretch.begin, stretch.end - stretch.begin, tiles.begins + first,
                     tiles.ends + first, stretch.end == whole.end && view.all_of(whole), a.soft_cap,
                     from_row(a, state, first), later_values ? later_values + block * later_bytes : nullptr,
                     later_bytes, tiles.scratch});
    }
}

// Rows past the last see what the last does: their results go nowhere.
BlockView view_of(const PieceWork& work, const TileMemory& tiles, int64_t block) {
    const int64_t first = block * kTileQueries;
    BlockView view = {std::numeric_limits<int64_t>::max(), 0, std::numeric_limits<int64_t>::max(), 0};
    for (int64_t row = first; row < first + kTileQueries; ++row) {
        const int64_t token = token_of(work.a, work.piece, std::min(row, work.piece.num_rows - 1));
        const Span seen = visible(work.a, token);
        tiles.begins[row] = static_cast<int32_t>(seen.begin);
        tiles.ends[row] = static_cast<int32_t>(seen.end);
        view = {std::min(view.first_begin, seen.begin), std::max(view.last_begin, seen.begin),
                std::min(view.first_end, seen.end), std::max(view.last_end, seen.end)};
    }
    return view;
}

}  // namespace

int64_t attention_tile_floats(const Attention& a, int64_t num_rows) {
    const TileMemory tiles(a, num_rows, nullptr);
    return padded_length(reinterpret_cast<intptr_t>(tiles.end) / kFloat + 1);
}

void prepare_tiles(const PieceWork& work) {
    const auto& [a, kernels, piece, memory] = work;
    const TileMemory tiles(a, piece.num_rows, memory);
    // The place of keys is free until a split begins, and has room for 16 rows of floats.
    float* rows = reinterpret_cast<float*>(tiles.keys);
    for (int64_t block = 0; block < tiles.num_blocks; ++block) {
        gather_queries(a, piece, block * kTileQueries, kTileQueries, rows);
        kernels.tile_attention->pack_queries(rows, key_floats(a),
                                             tiles.queries + block * tile_query_bytes(key_floats(a)));
        tiles.views[block] = view_of(work, tiles, block);
    }
}

void split_on_tiles(const PieceWork& work, int64_t index, int64_t last, const MixedRows& state) {
    const auto& [a, kernels, piece, memory] = work;
    const TileMemory tiles(a, piece.num_rows, memory);
    const Span span = piece.split(index), whole = piece.whole_split(index);
    clear(a, state, piece.num_rows);
    for (Span stretch = stretch_at(a, whole, span.begin); stretch.begin < span.end;) {
        const bool ends_split = stretch.end == whole.end;
        const Span next = stretch_at(a, ends_split ? piece.whole_split(index + 1) : whole, stretch.end);
        const bool goes_on = next.begin < last, are_apart = a.values.data != a.keys.data;
        const TileStretch packed = kernels.tile_attention->pack_stretch[a.keys.type](
            cached(work, stretch, goes_on ? tile_at(a, a.keys, piece, next.begin).rows : nullptr), tiles.keys,
            tiles.values);
        attend_stretch(work, tiles, packed, stretch,
                       goes_on && are_apart ? tile_at(a, a.values, piece, next.begin).rows : nullptr, state);
        stretch = next;
    }
}

}  // namespace ktdesk
