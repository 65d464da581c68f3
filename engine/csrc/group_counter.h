// Tasks that the threads of a pool take one by one, each from the share of its own NUMA node first.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "worker_pool.h"

namespace ktdesk {

// num_blocks times num_slices tasks, shared as WorkerPool::run_sliced does. For bodies that run once a
// thread:
//     GroupCounter counter(pool, num_experts, num_chunks);
//     pool.run(pool.num_threads(), [&](int64_t, int thread) {
//         prepare(thread);
//         while (counter.take(thread, task)) work(task.block, task.slice);
//     });
// A thread that is late finds nothing left.
class GroupCounter {
  public:
    struct Task {
        int64_t block, slice;
    };

    GroupCounter(const WorkerPool& pool, int64_t num_blocks, int64_t num_slices)
        : pool_(pool), groups_(static_cast<size_t>(pool.num_groups())) {
        for (int g = 0; g < pool.num_groups(); ++g) {
            Group& group = groups_[static_cast<size_t>(g)];
            group.slices = pool.share_of_group(g, num_slices);
            group.num_tasks = num_blocks * group.slices.size();
        }
    }

    // The next task of the thread's own group, or else of another; false when none is left.
    bool take(int thread, Task& task) {
        const int own = pool_.group_of(thread), num_groups = pool_.num_groups();
        for (int i = 0; i < num_groups; ++i) {
            Group& group = groups_[static_cast<size_t>((own + i) % num_groups)];
            if (group.next.load(std::memory_order_relaxed) >= group.num_tasks) continue;
            const int64_t index = group.next.fetch_add(1, std::memory_order_relaxed);
            if (index >= group.num_tasks) continue;
            task = task_at(group, index);
            return true;
        }
        return false;
    }

    // What take would give now if no other thread took it before: to fetch its memory ahead. False at the end
    // of the own group's share.
    bool peek(int thread, Task& task) const {
        const Group& group = groups_[static_cast<size_t>(pool_.group_of(thread))];
        const int64_t index = group.next.load(std::memory_order_relaxed);
        if (index >= group.num_tasks) return false;
        task = task_at(group, index);
        return true;
    }

  private:
    struct alignas(64) Group {
        std::atomic<int64_t> next{0};
        int64_t num_tasks = 0;
        Share slices = {};
    };

    static Task task_at(const Group& group, int64_t index) {
        return {index / group.slices.size(), group.slices.begin + index % group.slices.size()};
    }

    const WorkerPool& pool_;
    std::vector<Group> groups_;
};

}  // namespace ktdesk
