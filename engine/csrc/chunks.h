// Runs of neighbouring panels, which threads take one by one.
//
// A thread reads its run as one stream, so runs are long; but the last ones are short, so that threads end
// together although one was slow or lost its core. With several groups (experts), a run is of one of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "worker_pool.h"

namespace ktdesk {

struct Chunk {
    int64_t group;
    int64_t first, count;  // panels
};

// The panels of groups that have equally many each. Every NUMA node has the chunks of the panels that its
// threads packed; threads take those of their own node in order, and then those of others.
//     ChunkQueue queue(pool, num_panels, work of a panel of each group, added up);
//     queue.add(0, ...);
//     pool.run(pool.num_threads(), [&](int64_t, int thread) {
//         prepare(thread);
//         while (const Chunk* chunk = queue.take(thread)) work(*chunk);
//     });
// A thread that is late finds nothing left.
class ChunkQueue {
  public:
    ChunkQueue(WorkerPool& pool, int64_t num_panels, int64_t total_panel_work);

    // Splits the panels of a group, each of panel_work, into chunks of at most `most`, multiples of `step`
    // but for the last of a node. Each is at most a third of a thread's share of the work that is left.
    void add(int64_t group, int64_t panel_work, int64_t step, int64_t most);

    // Null where none is left.
    const Chunk* take(int thread);
    // What take would give if no other thread took it before: to fetch its memory ahead.
    const Chunk* peek(int thread) const;

  private:
    struct alignas(64) Node {
        std::atomic<int64_t> next{0};
        Share panels = {};
        int64_t num_shares = 0, work_left = 0;
        std::vector<Chunk> chunks;

        int64_t num_left() const {
            return static_cast<int64_t>(chunks.size()) - next.load(std::memory_order_relaxed);
        }
    };

    int node_for(int thread, int after) const {
        return (pool_.group_of(thread) + after) % pool_.num_groups();
    }
    void trace(int thread, int node, const Chunk& chunk) const;

    WorkerPool& pool_;
    std::vector<Node> nodes_;
};

}  // namespace ktdesk
