#include "attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "attention_plan.h"
#include "attention_state.h"
#include "tile_panels.h"

namespace ktdesk {

namespace {

// One piece on one thread.
struct Attending {
    PieceWork work;

    void prepare() const { work.a.on_tiles ? prepare_tiles(work) : prepare_vectors(work); }

    void split(int64_t index, int64_t last, const MixedRows& state) const {
        work.a.on_tiles ? split_on_tiles(work, index, last, state)
                        : split_on_vectors(work, index, last, state);
    }

    void merge(const MixedRows& part, const MixedRows& total) const {
        const int64_t num_rows = padded_rows(work.a, work.piece.num_rows);
        work.kernels.merge_rows(part, total, num_rows, value_floats(work.a));
    }

    void finish(const MixedRows& total) const {
        const auto& [a, kernels, piece, memory] = work;
        for (int64_t row = 0; row < piece.num_rows; ++row) {
            const int64_t head = head_of(a, piece, row);
            float* out = a.out + (token_of(a, piece, row) * a.num_heads + head) * a.values.length;
            const float sink = a.sinks ? a.sinks[head] : -std::numeric_limits<float>::infinity();
            kernels.finish_row(from_row(a, total, row), sink, out, a.values.length);
        }
    }
};

// What a task works in: two states, and what vectors or tiles need.
struct Scratch {
    MixedRows part, total;
    float* rest;
};

int64_t scratch_floats(const Attention& a, int64_t num_rows) {
    return 2 * state_floats(a, num_rows) +
           (a.on_tiles ? attention_tile_floats(a, num_rows) : attention_vector_floats(a, num_rows));
}

Scratch scratch_in(const Attention& a, float* memory, int64_t num_rows) {
    float* total = memory + state_floats(a, num_rows);
    return {state_in(a, memory, num_rows), state_in(a, total, num_rows), total + state_floats(a, num_rows)};
}

// A piece from its first split to its last.
void attend_piece(const RowKernels& kernels, const Attention& a, const Piece& piece, float* memory) {
    const Scratch scratch = scratch_in(a, memory, piece.num_rows);
    const Attending attending = {{a, kernels, piece, scratch.rest}};
    attending.prepare();
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

// Some splits of a piece; the last to finish merges all of them.
void attend_splits(const RowKernels& kernels, const Attention& a, const Piece& piece, Span splits,
                   std::atomic<int64_t>& num_left, float* memory) {
    const Scratch scratch = scratch_in(a, memory, piece.num_rows);
    const Attending attending = {{a, kernels, piece, scratch.rest}};
    attending.prepare();
    const int64_t last = piece.split(splits.end - 1).end, count = splits.end - splits.begin;
    for (int64_t i = splits.begin; i < splits.end; ++i) attending.split(i, last, part_of(a, piece, i));
    if (num_left.fetch_sub(count) != count) return;
    clear(a, scratch.total, piece.num_rows);
    for (int64_t i = 0; i < piece.num_splits(); ++i) attending.merge(part_of(a, piece, i), scratch.total);
    attending.finish(scratch.total);
}

void run_by_piece(WorkerPool& pool, const Attention& a, const std::vector<Piece>& pieces) {
    const auto num_pieces = static_cast<int64_t>(pieces.size());
    pool.run(num_pieces, [&](int64_t task, int thread) {  // the last have the longest context
        const Piece& piece = pieces[static_cast<size_t>(num_pieces - 1 - task)];
        const TileConfiguration configuration(a.on_tiles ? pool.kernels().tiles : nullptr);
        attend_piece(pool.kernels(), a, piece, pool.scratch(thread));
    });
}

struct SplitTask {
    int64_t piece;
    Span splits;
};

void run_by_split(WorkerPool& pool, const Attention& a, Plan& plan) {
    std::vector<Piece>& pieces = plan.pieces;
    std::vector<SplitTask> tasks;
    std::vector<std::atomic<int64_t>> num_left(pieces.size());
    int64_t num_floats = 0;
    for (size_t p = 0; p < pieces.size(); ++p) {
        const int64_t num_splits = pieces[p].num_splits();
        num_left[p] = num_splits;
        for (int64_t i = 0; i < num_splits; i += plan.splits_per_task)
            tasks.push_back(
                {static_cast<int64_t>(p), Span{i, i + plan.splits_per_task} & Span{0, num_splits}});
        num_floats += num_splits * state_floats(a, pieces[p].num_rows);
    }
    float* parts = pool.buffer(WorkerPool::kPartials).reserve_array<float>(num_floats);
    for (Piece& piece : pieces) {
        piece.parts = parts;
        parts += piece.num_splits() * state_floats(a, piece.num_rows);
    }
    pool.run(static_cast<int64_t>(tasks.size()), [&](int64_t task, int thread) {
        const auto& [p, splits] = tasks[static_cast<size_t>(task)];
        const TileConfiguration configuration(a.on_tiles ? pool.kernels().tiles : nullptr);
        attend_splits(pool.kernels(), a, pieces[static_cast<size_t>(p)], splits,
                      num_left[static_cast<size_t>(p)], pool.scratch(thread));
    });
}

}  // namespace

void gather_queries(const Attention& a, const Piece& piece, int64_t first, int64_t count, float* queries) {
    const int64_t length = a.keys.length;
    std::fill_n(queries, count * key_floats(a), 0.0f);
    for (int64_t row = first; row < std::min(first + count, piece.num_rows);
         ++row, queries += key_floats(a)) {
        const int64_t index = token_of(a, piece, row) * a.num_heads + head_of(a, piece, row);
        for (int64_t d = 0; d < length; ++d) queries[d] = a.scale * a.queries[index * length + d];
    }
}

CachedTile tile_at(const Attention& a, const CachedRows& rows, const Piece& piece, int64_t position) {
    const PagedContext& c = a.context;
    const int64_t page = c.page_tables[c.sequences[piece.first_token] * c.max_pages + page_of(a, position)];
    return {rows.data + page * rows.page_stride + piece.kv_head * rows.head_stride +
                offset_in_page(a, position) * rows.row_stride,
            rows.row_stride, padded_length(rows.length)};
}

void attention(WorkerPool& pool, const Attention& wanted) {
    Attention a = wanted;
    a.on_tiles = pool.kernels().tile_attention && most_queries(a) >= pool.tuning.min_tile_queries;
    Plan plan = make_plan(a, pool.num_threads());
    int64_t num_floats = 0;
    for (const Piece& piece : plan.pieces)
        num_floats = std::max(num_floats, scratch_floats(a, piece.num_rows));
    pool.reserve_scratch(num_floats);
    if (plan.by_split)
        run_by_split(pool, a, plan);
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
