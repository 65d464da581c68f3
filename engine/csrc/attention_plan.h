// How a batch of attention becomes tasks.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"

namespace ktdesk {

struct Span {
    int64_t begin, end;  // positions
};

Span operator&(Span a, Span b);

// What token t sees.
Span visible(const Attention& a, int64_t t);

// Query rows that share the keys they see. Tokens one after the other, of one sequence, are a run; row i of a
// run is head i % group, of those that share kv_head, of the run's token i / group.
//
// The context of a token is cut into splits, each gets a softmax of its own, and these are merged in order.
// How it is cut depends on the token's position alone: so its result does, too, and whether the splits are
// computed one after the other or by several threads changes no bit.
struct Piece {
    int64_t first_token;  // of the run
    int64_t kv_head, first_row, num_rows;
    Span seen;             // by any of its rows
    int64_t split_length;  // the same for all of its tokens
    float* parts;          // the states of its splits, where tasks compute them one by one

    int64_t first_split() const { return seen.begin / split_length; }
    int64_t num_splits() const { return (seen.end - 1) / split_length + 1 - first_split(); }
    Span whole_split(int64_t i) const {
        const int64_t begin = (first_split() + i) * split_length;
        return {begin, begin + split_length};
    }
    Span split(int64_t i) const { return seen & whole_split(i); }
};

int64_t token_of(const Attention& a, const Piece& piece, int64_t row);
int64_t head_of(const Attention& a, const Piece& piece, int64_t row);

// Changes no result.
struct Plan {
    std::vector<Piece> pieces;
    bool by_split;            // a task is some splits of a piece, else a piece
    int64_t splits_per_task;  // one after the other: what comes next is asked for in good time
};

Plan make_plan(const Attention& a, int64_t num_threads);

// Query rows of the largest run.
int64_t most_queries(const Attention& a);

}  // namespace ktdesk
