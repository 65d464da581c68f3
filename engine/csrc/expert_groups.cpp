#include "expert_groups.h"

#include <algorithm>

namespace ktdesk {

namespace {

void add_group(ExpertGroups& all, int64_t expert, int64_t begin, int64_t end, int64_t min_tile_rows) {
    const int64_t count = end - begin;
    const bool on_tiles = count >= min_tile_rows;
    all.groups.push_back({expert, begin, end, on_tiles ? all.num_tile_rows : -1});
    if (on_tiles) {
        all.num_tile_rows += num_tile_blocks(count) * kTileRows;
        all.most_rows = std::max(all.most_rows, count);
    } else {
        all.any_on_vectors = true;
    }
}

}  // namespace

ExpertGroups group_by_expert(const Routing& routing, int64_t num_experts, int64_t min_tile_rows,
                             int64_t* pairs) {
    const int64_t num_pairs = routing.num_tokens * routing.num_used;
    std::vector<int64_t> next(static_cast<size_t>(num_experts), 0);
    for (int64_t pair = 0; pair < num_pairs; ++pair)
        if (routing.has_expert(pair)) ++next[static_cast<size_t>(routing.ids[pair])];
    ExpertGroups all;
    int64_t slot = 0;
    for (int64_t e = 0; e < num_experts; ++e) {
        const int64_t count = next[static_cast<size_t>(e)];
        next[static_cast<size_t>(e)] = slot;
        if (count > 0) add_group(all, e, slot, slot + count, min_tile_rows);
        slot += count;
    }
    all.num_slots = slot;
    for (int64_t pair = 0; pair < num_pairs; ++pair)
        if (routing.has_expert(pair)) pairs[next[static_cast<size_t>(routing.ids[pair])]++] = pair;
    return all;
}

}  // namespace ktdesk
