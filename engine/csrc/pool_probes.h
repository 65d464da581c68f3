// What a pool does with tasks that do nothing: for measurements of its cost and tests of its promises.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

enum class RunKind { kRun, kSliced, kAtHome, kSlicedAtHome, kQueued };

// Writes the thread that did each of num_blocks * num_slices tasks, plus num_threads for each time more that
// it was done. kRun and kAtHome have one block. Each task takes this many nanoseconds.
void trace_threads(WorkerPool& pool, RunKind kind, int64_t num_blocks, int64_t num_slices, int64_t task_ns,
                   int32_t* threads);

// Seconds of num_runs runs of num_tasks empty tasks each.
double time_empty_runs(WorkerPool& pool, int64_t num_runs, int64_t num_tasks);

}  // namespace ktdesk
