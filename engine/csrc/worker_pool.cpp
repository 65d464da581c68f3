#include "worker_pool.h"

#include <unistd.h>

#include <cstdlib>
#include <new>

namespace ktdesk {

namespace {

constexpr size_t kCacheLine = 64;

// About 50 us of spinning: longer than the gap between two operations of a decode step, short enough that an
// idle engine costs nothing.
constexpr int kSpins = 2000;

void pause() {
#ifdef KTDESK_X86
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

}  // namespace

void Buffer::Free::operator()(void* block) const { std::free(block); }

void* Buffer::reserve(size_t bytes) {
    if (bytes > bytes_ || !block_) {
        const size_t rounded = (bytes / kCacheLine + 1) * kCacheLine;
        block_.reset();
        bytes_ = 0;
        block_.reset(std::aligned_alloc(kCacheLine, rounded));
        if (!block_) throw std::bad_alloc();
        bytes_ = rounded;
    }
    return block_.get();
}

WorkerPool::WorkerPool(int num_threads, const RowKernels& kernels)
    : kernels_(kernels), scratches_(static_cast<size_t>(num_threads)), process_(getpid()) {
    try {
        for (int thread = 1; thread < num_threads; ++thread)
            workers_.emplace_back([this, thread] { work(thread); });
    } catch (...) {  // the system gives no more threads
        stop_workers();
        throw;
    }
}

// A forked child has the pool but not its threads: there is nothing to join, and no thread object may be
// destroyed as if there were.
WorkerPool::~WorkerPool() {
    if (getpid() == process_)
        stop_workers();
    else
        new std::vector<std::thread>(std::move(workers_));
}

void WorkerPool::stop_workers() {
    stop_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::reserve_scratch(int64_t num_floats) {
    for (Buffer& scratch : scratches_) scratch.reserve_array<float>(num_floats);
}

// A worker enters by raising num_inside_ and then looking at open_; the caller leaves by clearing open_ and
// then looking at num_inside_. Both are sequentially consistent, so a worker that found the job open is
// waited for, and one that comes late finds it closed. Nobody waits for a worker that is still asleep.
void WorkerPool::run_erased(int64_t num_tasks, const void* task, Call call) {
    task_ = task;
    call_ = call;
    num_tasks_ = num_tasks;
    next_task_.store(0, std::memory_order_relaxed);
    const bool shared = num_tasks > 1 && !workers_.empty() && getpid() == process_;
    if (shared) {
        open_.store(true);
        generation_.fetch_add(1);
        generation_.notify_all();
    }
    take_tasks(0);
    if (!shared) return;
    open_.store(false);
    for (int spins = 0; num_inside_.load() != 0; ++spins)
        spins < kSpins ? pause() : std::this_thread::yield();
}

void WorkerPool::take_tasks(int thread) {
    for (;;) {
        const int64_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
        if (index >= num_tasks_) return;
        call_(task_, index, thread);
    }
}

void WorkerPool::wait_for_job(uint32_t seen) const {
    for (int spins = 0; spins < kSpins; ++spins) {
        if (generation_.load() != seen) return;
        pause();
    }
    generation_.wait(seen);
}

void WorkerPool::work(int thread) {
    for (uint32_t seen = 0;;) {
        wait_for_job(seen);
        seen = generation_.load();
        if (stop_) return;
        num_inside_.fetch_add(1);
        if (open_.load()) take_tasks(thread);
        num_inside_.fetch_sub(1);
    }
}

}  // namespace ktdesk
