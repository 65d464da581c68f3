#include "attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "attention_plan.h"
#include "attention_tile.h"

namespace ktdesk {

namespace {

// A tile has 1, 2, 4 or 8 rows.
int64_t tile_rows(int64_t num_rows) { return num_rows > 4 ? 8 : num_rows > 2 ? 4 : num_rows; }

int64_t padded_rows(int64_t num_rows) {
    const int64_t rest = num_rows % kMaxTileRows;
    return num_rows - rest + tile_rows(rest);
}

int64_t key_floats(const Attention& a) { return padded_length(a.keys.length); }
int64_t value_floats(const Attention& a) { return padded_length(a.values.length); }

// The mixed values first: they start at a cache line.
int64_t state_floats(const Attention& a, int64_t num_rows) {
    return padded_length(padded_rows(num_rows) * (value_floats(a) + 2));
}

MixedRows state_in(const Attention& a, float* memory, int64_t num_rows) {
    float* maxima = memory + padded_rows(num_rows) * value_floats(a);
    return {maxima, maxima + padded_rows(num_rows), memory};
}

MixedRows from_row(const Attention& a, const MixedRows& state, int64_t row) {
    return {state.maxima + row, state.sums + row, state.mixed + row * value_floats(a)};
}

void clear(const Attention& a, const MixedRows& state, int64_t num_rows) {
    const int64_t rows = padded_rows(num_rows);
    std::fill_n(state.maxima, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(state.sums, rows, 0.0f);
    std::fill_n(state.mixed, rows * value_floats(a), 0.0f);
}

// queries: (padded rows, key_floats)
void gather_queries(const Attention& a, const Piece& piece, float* queries) {
    const int64_t length = a.keys.length;
    std::fill_n(queries, padded_rows(piece.num_rows) * key_floats(a), 0.0f);
    for (int64_t row = 0; row < piece.num_rows; ++row) {
        const int64_t index = token_of(a, piece, row) * a.num_heads + head_of(a, piece, row);
        for (int64_t d = 0; d < length; ++d)
            queries[row * key_floats(a) + d] = a.scale * a.queries[index * length + d];
    }
}

CachedTile tile_of(const Attention& a, const CachedRows& rows, const Piece& piece, int64_t position) {
    const PagedContext& c = a.context;
    const int64_t page = c.page_tables[c.sequences[piece.first_token] * c.max_pages + position / c.page_size];
    return {rows.data + page * rows.page_stride + piece.kv_head * rows.head_stride +
                position % c.page_size * rows.row_stride,
            rows.row_stride, padded_length(rows.length)};
}

// The end of the tile that position lies in: tiles end with pages.
int64_t tile_end(const Attention& a, int64_t position) {
    const int64_t offset = position % a.context.page_size;
    const int64_t end = std::min((offset / kMaxTilePositions + 1) * kMaxTilePositions, a.context.page_size);
    return position - offset + end;
}

// One piece on one thread.
struct Attending {
    const Attention& a;
    const RowKernels& kernels;
    const Piece& piece;
    float* queries;

    // Rows first.. of a tile's height over `span`, which lies in one tile.
    void tile(Span span, int64_t first, const MixedRows& state, const uint8_t* next_keys) const {
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
        const AttentionTile tile = {queries + first * key_floats(a),
                                    tile_rows(num_rows),
                                    tile_of(a, a.keys, piece, seen.begin),
                                    tile_of(a, a.values, piece, seen.begin),
                                    seen.end - seen.begin,
                                    first == 0 && a.values.data != a.keys.data,
                                    first == 0 ? next_keys : nullptr,
                                    begins,
                                    ends,
                                    a.soft_cap,
                                    from_row(a, state, first)};
        kernels.attend_tile[a.keys.type](tile);
    }

    // The state of one split. next_end: up to where this thread goes on after it.
    void split(int64_t index, int64_t next_end, const MixedRows& state) const {
        const Span span = piece.split(index);
        clear(a, state, piece.num_rows);
        for (int64_t begin = span.begin; begin < span.end; begin = tile_end(a, begin)) {
            const int64_t end = tile_end(a, begin);
            const uint8_t* next_keys = end < next_end ? tile_of(a, a.keys, piece, end).rows : nullptr;
            for (int64_t row = 0; row < piece.num_rows; row += kMaxTileRows)
                tile(Span{begin, end} & span, row, state, next_keys);
        }
    }

    void merge(const MixedRows& part, const MixedRows& total) const {
        kernels.merge_rows(part, total, padded_rows(piece.num_rows), value_floats(a));
    }

    void finish(const MixedRows& total) const {
        for (int64_t row = 0; row < piece.num_rows; ++row) {
            const int64_t head = head_of(a, piece, row);
            float* out = a.out + (token_of(a, piece, row) * a.num_heads + head) * a.values.length;
            const float sink = a.sinks ? a.sinks[head] : -std::numeric_limits<float>::infinity();
            kernels.finish_row(from_row(a, total, row), sink, out, a.values.length);
        }
    }
};

// What a task works in: the queries of a piece and two states.
struct Scratch {
    float* queries;
    MixedRows part, total;
};

int64_t scratch_floats(const Attention& a, int64_t num_rows) {
    return padded_rows(num_rows) * key_floats(a) + 2 * state_floats(a, num_rows);
}

Scratch scratch_in(const Attention& a, float* memory, int64_t num_rows) {
    float* states = memory + padded_rows(num_rows) * key_floats(a);
    return {memory, state_in(a, states, num_rows), state_in(a, states + state_floats(a, num_rows), num_rows)};
}

// A piece from its first split to its last.
void attend_piece(const RowKernels& kernels, const Attention& a, const Piece& piece, float* memory) {
    const Scratch scratch = scratch_in(a, memory, piece.num_rows);
    const Attending attending = {a, kernels, piece, scratch.queries};
    gather_queries(a, piece, scratch.queries);
    clear(a, scratch.total, piece.num_rows);
    for (int64_t i = 0; i < piece.num_splits(); ++i) {
        attending.split(i, piece.seen.end, scratch.part);
        attending.merge(scratch.part, scratch.total);
    }
    attending.finish(scratch.total);
}

MixedRows part_of(const Attention& a, const Piece& piece, int64_t index) {
    return state_in(a, piece.parts + index * state_floats(a, piece.num_rows), piece.num_rows);
}

// One split of a piece; the last to finish merges all of them.
void attend_split(const RowKernels& kernels, const Attention& a, const Piece& piece, int64_t index,
                  std::atomic<int64_t>& num_left, float* memory) {
    const Scratch scratch = scratch_in(a, memory, piece.num_rows);
    const Attending attending = {a, kernels, piece, scratch.queries};
    gather_queries(a, piece, scratch.queries);
    attending.split(index, piece.split(index).end, part_of(a, piece, index));
    if (num_left.fetch_sub(1) != 1) return;
    clear(a, scratch.total, piece.num_rows);
    for (int64_t i = 0; i < piece.num_splits(); ++i) attending.merge(part_of(a, piece, i), scratch.total);
    attending.finish(scratch.total);
}

void run_by_piece(WorkerPool& pool, const Attention& a, const std::vector<Piece>& pieces) {
    const auto num_pieces = static_cast<int64_t>(pieces.size());
    pool.run(num_pieces, [&](int64_t task, int thread) {  // the last have the longest context
        const Piece& piece = pieces[static_cast<size_t>(num_pieces - 1 - task)];
        attend_piece(pool.kernels(), a, piece, pool.scratch(thread));
    });
}

struct SplitTask {
    int64_t piece, split;
};

void run_by_split(WorkerPool& pool, const Attention& a, std::vector<Piece>& pieces) {
    std::vector<SplitTask> tasks;
    std::vector<std::atomic<int64_t>> num_left(pieces.size());
    int64_t num_floats = 0;
    for (size_t p = 0; p < pieces.size(); ++p) {
        num_left[p] = pieces[p].num_splits();
        for (int64_t i = 0; i < num_left[p]; ++i) tasks.push_back({static_cast<int64_t>(p), i});
        num_floats += num_left[p] * state_floats(a, pieces[p].num_rows);
    }
    float* parts = pool.buffer(WorkerPool::kPartials).reserve_array<float>(num_floats);
    for (Piece& piece : pieces) {
        piece.parts = parts;
        parts += piece.num_splits() * state_floats(a, piece.num_rows);
    }
    pool.run(static_cast<int64_t>(tasks.size()), [&](int64_t task, int thread) {
        const auto [p, split] = tasks[static_cast<size_t>(task)];
        attend_split(pool.kernels(), a, pieces[static_cast<size_t>(p)], split,
                     num_left[static_cast<size_t>(p)], pool.scratch(thread));
    });
}

}  // namespace

void attention(WorkerPool& pool, const Attention& a) {
    Plan plan = make_plan(a, pool.num_threads());
    int64_t num_floats = 0;
    for (const Piece& piece : plan.pieces)
        num_floats = std::max(num_floats, scratch_floats(a, piece.num_rows));
    pool.reserve_scratch(num_floats);
    if (plan.by_split)
        run_by_split(pool, a, plan.pieces);
    else
        run_by_piece(pool, a, plan.pieces);
}

void store_rows(WorkerPool& pool, const CachedRows& rows, const PagedContext& c, int64_t num_heads,
                const float* x) {
    const StoreRow store = pool.kernels().store_row[rows.type];
    pool.run(c.num_tokens, [&](int64_t t, int) {
        const int64_t page = c.page_tables[c.sequences[t] * c.max_pages + c.positions[t] / c.page_size];
        uint8_t* row = rows.data + page * rows.page_stride + c.positions[t] % c.page_size * rows.row_stride;
        for (int64_t h = 0; h < num_heads; ++h)
            store(x + (t * num_heads + h) * rows.length, rows.length, row + h * rows.head_stride);
    });
}

}  // namespace ktdesk
