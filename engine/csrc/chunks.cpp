#include "chunks.h"

#include <algorithm>

namespace ktdesk {

ChunkQueue::ChunkQueue(WorkerPool& pool, int64_t num_panels, int64_t total_panel_work)
    : pool_(pool), nodes_(static_cast<size_t>(pool.num_groups())) {
    for (int n = 0; n < pool.num_groups(); ++n) {
        Node& node = nodes_[static_cast<size_t>(n)];
        node.panels = pool.share_of_group(n, num_panels);
        node.num_shares = 3 * pool.threads_of_group(n);
        node.work_left = node.panels.size() * total_panel_work;
    }
}

void ChunkQueue::add(int64_t group, int64_t panel_work, int64_t step, int64_t most) {
    for (Node& node : nodes_)
        for (int64_t first = node.panels.begin; first < node.panels.end;) {
            const int64_t wanted =
                std::min(node.work_left / node.num_shares / panel_work, most) / step * step;
            const int64_t count = std::min(std::max(wanted, step), node.panels.end - first);
            node.chunks.push_back({group, first, count});
            node.work_left -= count * panel_work;
            first += count;
        }
}

void ChunkQueue::trace(int thread, int node, const Chunk& chunk) const {
    pool_.taken_chunks[static_cast<size_t>(thread)].push_back(
        {pool_.group_of(thread), node, chunk.group, chunk.first, chunk.count});
}

const Chunk* ChunkQueue::take(int thread) {
    for (int after = 0; after < pool_.num_groups(); ++after) {
        const int n = node_for(thread, after);
        Node& node = nodes_[static_cast<size_t>(n)];
        if (node.num_left() <= 0) continue;
        const auto index = static_cast<size_t>(node.next.fetch_add(1, std::memory_order_relaxed));
        if (index >= node.chunks.size()) continue;
        if (!pool_.taken_chunks.empty()) trace(thread, n, node.chunks[index]);
        return &node.chunks[index];
    }
    return nullptr;
}

const Chunk* ChunkQueue::peek(int thread) const {
    for (int after = 0; after < pool_.num_groups(); ++after) {
        const Node& node = nodes_[static_cast<size_t>(node_for(thread, after))];
        const auto index = static_cast<size_t>(node.next.load(std::memory_order_relaxed));
        if (index < node.chunks.size()) return &node.chunks[index];
    }
    return nullptr;
}

}  // namespace ktdesk
