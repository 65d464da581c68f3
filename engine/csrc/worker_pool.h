// Threads that share the tasks of one operation. The calling thread works too.
#pragma once

#include <sys/types.h>

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
    bool overlaps_phases = true;        // an expert's second phase may run while others are in their first
};

// One operation at a time: a caller holds `lock()` for as long as it uses the pool or its buffers.
class WorkerPool {
  public:
    WorkerPool(int num_threads, const RowKernels& kernels);
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    int num_threads() const { return static_cast<int>(workers_.size()) + 1; }
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
        kTileInputs,
        kTileHidden,
        kNumBuffers
    };
    Buffer& buffer(BufferName name) { return buffers_[name]; }

    Tuning tuning;

    // What the operations so far did. Written under the lock.
    std::atomic<int64_t> weight_bytes{0};  // of weights, each counted once an operation that reads it
    std::atomic<int64_t> busy_ns{0};

    // The program that is being recorded on this pool, or null.
    Program* recording = nullptr;

    // Calls task(index, thread) once for each index in 0..num_tasks-1, in any order, and returns when all are
    // done. Tasks do not throw and do not call run.
    template <class Task>
    void run(int64_t num_tasks, const Task& task) {
        run_erased(num_tasks, &task, [](const void* erased, int64_t index, int thread) {
            (*static_cast<const Task*>(erased))(index, thread);
        });
    }

  private:
    using Call = void (*)(const void* task, int64_t index, int thread);

    void run_erased(int64_t num_tasks, const void* task, Call call);
    void take_tasks(int thread);
    void work(int thread);
    void wait_for_job(uint32_t seen) const;
    void stop_workers();

    const RowKernels& kernels_;
    std::mutex mutex_;
    std::vector<Buffer> scratches_;
    Buffer buffers_[kNumBuffers];

    // The job. Written only while closed and nobody is inside, see run_erased.
    const void* task_ = nullptr;
    Call call_ = nullptr;
    int64_t num_tasks_ = 0;
    alignas(64) std::atomic<int64_t> next_task_{0};

    alignas(64) std::atomic<uint32_t> generation_{0};  // counts jobs: workers wait for it to change
    std::atomic<bool> open_{false};                    // a worker may enter the job
    std::atomic<bool> stop_{false};
    alignas(64) std::atomic<int> num_inside_{0};  // workers that may touch the job

    std::vector<std::thread> workers_;
    const pid_t process_;  // a child of a fork has no workers, and computes alone
};

}  // namespace ktdesk
