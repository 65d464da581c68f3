// A batch sorted by expert.
#pragma once

#include <cstdint>
#include <vector>

#include "expert_mlp.h"

namespace ktdesk {

// A pair is one token at one of its experts: index token * num_used + j. The groups are the pairs sorted by
// expert; slot s of the sorted list is row s of what is computed for the pairs.
struct ExpertGroup {
    int64_t expert;
    int64_t begin, end;  // slots
    int64_t tile_begin;  // the first row in tiles, a multiple of kTileRows; -1: computed on vectors

    int64_t num_rows() const { return end - begin; }
    bool is_on_tiles() const { return tile_begin >= 0; }
};

struct ExpertGroups {
    std::vector<ExpertGroup> groups;  // of the experts that have any
    int64_t num_slots = 0;            // pairs that have an expert
    int64_t num_tile_rows = 0;        // of all groups on tiles, each padded to whole tiles
    int64_t most_rows = 0;            // of a group on tiles
    bool any_on_vectors = false;
};

// Fills pairs (slot -> pair). Groups of at least min_tile_rows go on tiles.
ExpertGroups group_by_expert(const Routing& routing, int64_t num_experts, int64_t min_tile_rows,
                             int64_t* pairs);

}  // namespace ktdesk
