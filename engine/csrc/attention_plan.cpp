#include "attention_plan.h"

#include <algorithm>
#include <limits>

#include "attention_tile.h"

namespace ktdesk {

namespace {

constexpr int64_t kShortestSplit = 256;
constexpr int64_t kMaxSplits = 32;

// Query rows that one task computes. On vectors, keys and values of a tile come from the cache close to the
// core for all but the first kMaxTileRows of them. On tiles, turning a stretch into tiles costs as much as
// about 24 rows of it; the states of all rows should stay in the second-level cache.
constexpr int64_t kMaxTaskRows = 64;
constexpr int64_t kMaxTaskFloats = 64 * 1024;

// So that no thread waits long for the last task.
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kSplitTasksPerThread = 16;

int64_t group_of(const Attention& a) { return a.num_heads / a.num_kv_heads; }

int64_t split_length(int64_t position) {
    int64_t length = kShortestSplit;
    while (length * kMaxSplits <= position) length *= 2;
    return length;
}

// Tokens one after the other, of one sequence, whose context is split alike.
struct Run {
    int64_t first, num_tokens;
};

std::vector<Run> runs_of(const PagedContext& c) {
    std::vector<Run> runs;
    for (int64_t t = 0; t < c.num_tokens; ++t) {
        const bool goes_on = t > 0 && c.sequences[t] == c.sequences[t - 1] &&
                             split_length(c.positions[t]) == split_length(c.positions[t - 1]);
        if (goes_on)
            ++runs.back().num_tokens;
        else
            runs.push_back({t, 1});
    }
    return runs;
}

Piece make_piece(const Attention& a, const Run& run, int64_t kv_head, int64_t first_row, int64_t num_rows) {
    Piece piece = {run.first, kv_head, first_row, num_rows, {std::numeric_limits<int64_t>::max(), 0}, 0, {}};
    for (int64_t row = 0; row < num_rows; ++row) {
        const Span span = visible(a, token_of(a, piece, row));
        piece.seen = {std::min(piece.seen.begin, span.begin), std::max(piece.seen.end, span.end)};
    }
    piece.split_length = split_length(a.context.positions[run.first]);
    return piece;
}

std::vector<Piece> pieces_of(const Attention& a, const std::vector<Run>& runs, int64_t max_rows) {
    std::vector<Piece> pieces;
    for (const Run& run : runs) {
        const int64_t num_rows = run.num_tokens * group_of(a);
        for (int64_t first = 0; first < num_rows; first += max_rows)
            for (int64_t kv_head = 0; kv_head < a.num_kv_heads; ++kv_head)
                pieces.push_back(make_piece(a, run, kv_head, first, std::min(max_rows, num_rows - first)));
    }
    return pieces;
}

int64_t num_splits_of(const std::vector<Piece>& pieces) {
    int64_t num_splits = 0;
    for (const Piece& piece : pieces) num_splits += piece.num_splits();
    return num_splits;
}

}  // namespace

int64_t most_queries(const Attention& a) {
    int64_t most = 0;
    for (const Run& run : runs_of(a.context)) most = std::max(most, run.num_tokens * group_of(a));
    return most;
}

Span operator&(Span a, Span b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

Span visible(const Attention& a, int64_t t) {
    const int64_t end = a.context.positions[t] + 1;
    return {a.window > 0 ? std::max<int64_t>(0, end - a.window) : 0, end};
}

int64_t token_of(const Attention& a, const Piece& piece, int64_t row) {
    return piece.first_token + (piece.first_row + row) / group_of(a);
}

int64_t head_of(const Attention& a, const Piece& piece, int64_t row) {
    return piece.kv_head * group_of(a) + (piece.first_row + row) % group_of(a);
}

namespace {

int64_t most_rows(const Attention& a) {
    if (!a.on_tiles) return kMaxTaskRows;
    const int64_t rows = kMaxTaskFloats / padded_length(a.values.length) / kTileQueries * kTileQueries;
    return std::clamp<int64_t>(rows, 2 * kTileQueries, 512);
}

int64_t fewest_rows(const Attention& a) { return a.on_tiles ? kTileQueries : kMaxTileRows; }

}  // namespace

Plan make_plan(const Attention& a, int64_t num_threads) {
    const std::vector<Run> runs = runs_of(a.context);
    const auto wanted = static_cast<size_t>(num_threads > 1 ? kTasksPerThread * num_threads : 1);
    Plan plan = {pieces_of(a, runs, most_rows(a)), false, 1};
    if (plan.pieces.size() >= wanted) return plan;
    plan.by_split = num_splits_of(plan.pieces) > static_cast<int64_t>(plan.pieces.size());
    for (int64_t rows = most_rows(a) / 2; rows >= fewest_rows(a); rows /= 2) {
        const int64_t num_tasks =
            plan.by_split ? num_splits_of(plan.pieces) : static_cast<int64_t>(plan.pieces.size());
        if (num_tasks >= static_cast<int64_t>(wanted)) break;
        plan.pieces = pieces_of(a, runs, rows);
    }
    plan.splits_per_task =
        std::max<int64_t>(1, num_splits_of(plan.pieces) / (kSplitTasksPerThread * num_threads));
    return plan;
}

}  // namespace ktdesk
