// Threads that share the tasks of one operation. The calling thread works too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels.h"

namespace ktdesk {

class Program;
class Stream;

// Memory that grows and is kept: one block a user, aligned to a cache line.
class Buffer {
  public:
    // At least `bytes`; what it held before is lost when it grows.
    void* reserve(size_t bytes);
    template <class T>
    T* reserve_array(int64_t count) {
        return static_cast<T*>(reserve(static_cast<size_t>(count) * sizeof(T)));
    }
    template <class T>
    T* array() const {
        return static_cast<T*>(block_.get());
    }

  private:
    struct Free {
        void operator()(void* block) const;
    };
    std::unique_ptr<void, Free> block_;
    size_t bytes_ = 0;
};

// What the drivers choose by. Only speed and rounding depend on it; read it while the pool is locked.
struct Tuning {
    int64_t min_tile_rows = INT64_MAX;  // of an expert, or of a matrix: from so many tokens on tiles are used
    bool rounds_to_bfloat16 = false;    // on tiles: else as integers of 16 bits (tiles.h)
    int64_t min_tile_queries =
        INT64_MAX;                // of a head of keys: from so many on tiles attend, where there are tiles
    bool overlaps_phases = true;  // an expert's second phase may run while others are in their first
};

// Where one thread of a pool belongs.
struct ThreadPlace {
    int group;              // ascending from 0 over the threads, no number left out; a group is a NUMA node
    std::vector<int> cpus;  // of the node, or one core of it; empty: wherever the system puts it
};

// The first `num_threads` places of a machine that has one node and pins nothing.
std::vector<ThreadPlace> unpinned_places(int num_threads);

// What a group does of a range of indices: begin..end-1.
struct Share {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
};

// The threads are in groups, one a NUMA node, and each group has a contiguous share of what is to be done. A
// weight is sliced by its rows: a group packs its share of the panels of every matrix, so that their pages
// are of its node, and later multiplies the same panels. Every output row is then computed whole, by one
// thread, in the order of one node, so the results are the same bit for bit whatever the groups are. Slicing
// the width instead would give every node a part of every sum: to be added across nodes in each operation,
// and rounded differently with each number of nodes.
//
// For this to work an operation goes over the panels of each matrix with run_sliced:
//     pool.run_sliced(num_experts, num_chunks, [&](int64_t expert, int64_t chunk, int thread) {...});
// and not with run over experts * chunks, which would give each node whole experts. Packing does the same
// with run_sliced_at_home. An operation that goes over runs of panels, and prepares each thread once, takes
// them from a ChunkQueue (chunks.h) inside run(num_threads, ...).
//
// One operation at a time: a caller holds `lock()` for as long as it uses the pool or its buffers.
class WorkerPool {
  public:
    // places: one a thread, not empty. The first is of the calling thread, which is never pinned: it belongs
    // to others. It works for the group on whose cpus it finds itself, and else for the group of its place.
    WorkerPool(const RowKernels& kernels, const std::vector<ThreadPlace>& places);
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    int num_threads() const { return static_cast<int>(group_of_thread_.size()); }
    int num_groups() const { return num_groups_; }
    const RowKernels& kernels() const { return kernels_; }
    std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

    // Gives every thread a scratch of this many floats. Throws std::bad_alloc, which a task must not.
    void reserve_scratch(int64_t num_floats);
    float* scratch(int thread) const { return scratches_[static_cast<size_t>(thread)].array<float>(); }

    // Buffers of an operation that live across its phases.
    enum BufferName {
        kPairs,
        kHidden,
        kPartials,
        kPointers,
        kQuantized,
        kQuantizedHidden,
        kRowIds,
        kTileTokens,
        kTileInputs,
        kTileHidden,
        kNumBuffers
    };
    Buffer& buffer(BufferName name) { return buffers_[name]; }

    Tuning tuning;

    // What the operations so far did. Written under the lock.
    std::atomic<int64_t> weight_bytes{0};  // of weights, each counted once an operation that reads it
    std::atomic<int64_t> busy_ns{0};

    // For tests: the chunks of panels (chunks.h) that each thread took, in order, where they are traced. Use
    // it while the pool is locked.
    struct TakenChunk {
        int own_node, node;
        int64_t group, first, count;
    };
    std::vector<std::vector<TakenChunk>> taken_chunks;  // by thread; empty: not traced

    // The program that is being recorded on this pool, or null.
    Program* recording = nullptr;

    // Runs what is done on this pool, where its callers do not themselves.
    Stream* stream = nullptr;

    // Of a thread inside a task. The group of the calling thread may be another in each run.
    int group_of(int thread) const {
        return thread == 0 ? group_of_caller_ : group_of_thread_[static_cast<size_t>(thread)];
    }

    // Of `count` indices, those that belong to a group: by its threads.
    Share share_of_group(int group, int64_t count) const;
    int threads_of_group(int group) const {
        return first_thread_of_group_[static_cast<size_t>(group) + 1] -
               first_thread_of_group_[static_cast<size_t>(group)];
    }

    // Calls task(index, thread) once for each index in 0..num_tasks-1 and returns when all are done. A group
    // takes the indices of its share in order, and those of others when its own are gone. Tasks do not throw
    // and do not call run.
    template <class Task>
    void run(int64_t num_tasks, const Task& task) {
        run_job({&task, call_with_index<Task>, 1, num_tasks, true});
    }

    // Calls task(block, slice, thread) once for each of num_blocks * num_slices, as run does. Of every block
    // a group has its share of the slices; it takes them block by block.
    template <class Task>
    void run_sliced(int64_t num_blocks, int64_t num_slices, const Task& task) {
        run_job({&task, call_with_slice<Task>, num_blocks, num_slices, true});
    }

    // As run and run_sliced, but a group does its own share alone: for the first touch of memory that it will
    // read later.
    template <class Task>
    void run_at_home(int64_t num_tasks, const Task& task) {
        run_job({&task, call_with_index<Task>, 1, num_tasks, false});
    }
    template <class Task>
    void run_sliced_at_home(int64_t num_blocks, int64_t num_slices, const Task& task) {
        run_job({&task, call_with_slice<Task>, num_blocks, num_slices, false});
    }

  private:
    using Call = void (*)(const void* task, int64_t block, int64_t slice, int thread);

    struct Job {
        const void* task;
        Call call;
        int64_t num_blocks, num_slices;
        bool may_help;  // a group may do what is another's
    };

    // The tasks of one group: blocks times the slices of its share.
    struct alignas(64) Group {
        // Tasks that nobody has taken yet, in one of the two: below 0 where threads came late, see take_from.
        std::atomic<int64_t> num_left{0};
        std::atomic<int64_t> num_left_at_home{0};  // not for other groups
        int64_t num_tasks = 0;
        Share slices = {};
        int num_workers = 0;  // without the calling thread
    };

    template <class Task>
    static void call_with_index(const void* task, int64_t, int64_t slice, int thread) {
        (*static_cast<const Task*>(task))(slice, thread);
    }
    template <class Task>
    static void call_with_slice(const void* task, int64_t block, int64_t slice, int thread) {
        (*static_cast<const Task*>(task))(block, slice, thread);
    }

    void run_job(const Job& job);
    void run_alone(const Job& job) const;
    void publish(const Job& job);
    int64_t take_tasks(int group, int thread);
    int64_t take_from(std::atomic<int64_t>& num_left, const Group& group, int thread);
    int find_group_of_caller() const;
    void wait_for_workers();
    void work(int thread, const std::vector<int>& cpus);
    void wait_for_job(int32_t seen);
    void wake_workers();
    void stop_workers();

    const RowKernels& kernels_;
    std::mutex mutex_;
    std::vector<Buffer> scratches_;
    Buffer buffers_[kNumBuffers];

    std::vector<int> group_of_thread_;
    std::vector<int> group_of_cpu_;           // empty where there is nothing to choose
    std::vector<int> first_thread_of_group_;  // and the number of threads behind the last group
    int num_groups_;
    bool may_spin_;

    alignas(64) std::atomic<int32_t> generation_{0};  // counts jobs: workers wait for it to change
    Job job_ = {};
    int group_of_caller_ = 0;
    std::unique_ptr<Group[]> groups_;

    alignas(64) std::atomic<int64_t> num_done_{0};  // by workers, since the pool was made
    std::atomic<int32_t> is_caller_parked_{0};
    alignas(64) int64_t num_expected_ = 0;  // what num_done_ is once this job is done
    alignas(64) std::atomic<int32_t> num_parked_{0};
    std::atomic<bool> stop_{false};

    std::vector<std::thread> workers_;
    const int num_forks_;  // a child of a fork has no workers, and computes alone
};

}  // namespace ktdesk
