#include "pool_probes.h"

#include <algorithm>
#include <chrono>

#include "chunks.h"

namespace ktdesk {

namespace {

using Clock = std::chrono::steady_clock;

void work_for(std::chrono::nanoseconds time) {
    const auto end = Clock::now() + time;
    while (time.count() > 0 && Clock::now() < end) {
    }
}

}  // namespace

void trace_threads(WorkerPool& pool, RunKind kind, int64_t num_blocks, int64_t num_slices, int64_t task_ns,
                   int32_t* threads) {
    const int32_t num_threads = pool.num_threads();
    std::fill(threads, threads + num_blocks * num_slices, -num_threads);
    const auto note = [&](int64_t block, int64_t slice, int thread) {
        int32_t& noted = threads[block * num_slices + slice];
        noted = noted < 0 ? thread : noted + num_threads;
        work_for(std::chrono::nanoseconds(task_ns));
    };
    const auto note_slice = [&](int64_t slice, int thread) { note(0, slice, thread); };
    ChunkQueue queue(pool, num_slices, num_blocks);
    for (int64_t block = 0; block < num_blocks; ++block) queue.add(block, 1, 1, 1);
    const auto take_and_note = [&](int64_t, int thread) {
        while (const Chunk* chunk = queue.take(thread)) note(chunk->group, chunk->first, thread);
    };
    switch (kind) {
        case RunKind::kRun:
            return pool.run(num_slices, note_slice);
        case RunKind::kSliced:
            return pool.run_sliced(num_blocks, num_slices, note);
        case RunKind::kAtHome:
            return pool.run_at_home(num_slices, note_slice);
        case RunKind::kSlicedAtHome:
            return pool.run_sliced_at_home(num_blocks, num_slices, note);
        case RunKind::kQueued:
            return pool.run(pool.num_threads(), take_and_note);
    }
}

double time_empty_runs(WorkerPool& pool, int64_t num_runs, int64_t num_tasks) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < num_runs; ++i) pool.run(num_tasks, [](int64_t, int) {});
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace ktdesk
