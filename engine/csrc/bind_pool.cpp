// The worker pool, and the instruction sets that it can have.
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "dispatch.h"
#include "pool_probes.h"

namespace ktdesk {

namespace {

// (group, cpus) of each thread
using PlaceTuples = std::vector<std::tuple<int, std::vector<int>>>;

std::vector<ThreadPlace> as_places(int num_threads, const std::optional<PlaceTuples>& tuples) {
    require(num_threads >= 1, "a pool needs at least one thread");
    if (!tuples) return unpinned_places(num_threads);
    require(static_cast<int>(tuples->size()) == num_threads, "a pool needs one place a thread");
    std::vector<ThreadPlace> places;
    for (const auto& [group, cpus] : *tuples) {
        const int last = places.empty() ? 0 : places.back().group;
        require(group == last || (!places.empty() && group == last + 1),
                "the groups of a pool's threads must ascend from 0 and leave none out");
        for (int cpu : cpus) require(cpu >= 0 && cpu < 1 << 16, "a pool's cpu must be 0 to 65535");
        places.push_back({group, cpus});
    }
    return places;
}

void make_pool(WorkerPool* self, int num_threads, const std::string& isa,
               const std::optional<PlaceTuples>& places) {
    const RowKernels* kernels = find_row_kernels(isa);
    require(kernels != nullptr, "this machine has no such instruction set");
    new (self) WorkerPool(*kernels, as_places(num_threads, places));
}

void call_trace_threads(WorkerPool& pool, int kind, int64_t task_ns, const Array<int32_t, 2>& threads) {
    require(kind >= 0 && kind <= static_cast<int>(RunKind::kQueued), "trace_threads: no such kind of run");
    const bool has_one_block =
        kind == static_cast<int>(RunKind::kRun) || kind == static_cast<int>(RunKind::kAtHome);
    require(!has_one_block || dim(threads, 0) == 1, "trace_threads: this kind of run has one block");
    run_alone(pool, [&] {
        trace_threads(pool, static_cast<RunKind>(kind), dim(threads, 0), dim(threads, 1), task_ns,
                      threads.data());
    });
}

// (own node, node, group, first panel, panels) of each chunk that each thread took
using TakenTuples = std::vector<std::vector<std::tuple<int, int, int64_t, int64_t, int64_t>>>;

TakenTuples call_trace_chunks(WorkerPool& pool, bool is_traced) {
    TakenTuples tuples;
    run_alone(pool, [&] {
        for (const auto& taken : pool.taken_chunks) {
            tuples.emplace_back();
            for (const WorkerPool::TakenChunk& c : taken)
                tuples.back().emplace_back(c.own_node, c.node, c.group, c.first, c.count);
        }
        pool.taken_chunks.clear();
        if (is_traced) pool.taken_chunks.resize(static_cast<size_t>(pool.num_threads()));
    });
    return tuples;
}

double call_time_empty_runs(WorkerPool& pool, int64_t num_runs, int64_t num_tasks) {
    double seconds = 0;
    run_alone(pool, [&] { seconds = time_empty_runs(pool, num_runs, num_tasks); });
    return seconds;
}

}  // namespace

void bind_pool(nb::module_& m) {
    nb::class_<WorkerPool>(m, "WorkerPool")
        .def("__init__", make_pool, nb::arg("num_threads"), nb::arg("isa"), nb::arg("places").none())
        .def_prop_ro("num_threads", &WorkerPool::num_threads)
        .def_prop_ro("num_groups", &WorkerPool::num_groups)
        .def_prop_ro("weight_bytes", [](const WorkerPool& pool) { return pool.weight_bytes.load(); })
        .def_prop_ro("busy_seconds",
                     [](const WorkerPool& pool) { return static_cast<double>(pool.busy_ns.load()) / 1e9; })
        .def_prop_ro("isa", [](const WorkerPool& pool) { return std::string(pool.kernels().name); })
        .def_prop_ro("has_tiles", [](const WorkerPool& pool) { return pool.kernels().tiles != nullptr; })
        .def_prop_rw(
            "min_tile_rows", [](const WorkerPool& pool) { return pool.tuning.min_tile_rows; },
            [](WorkerPool& pool, int64_t rows) {
                const auto lock = pool.lock();
                pool.tuning.min_tile_rows = rows;
            })
        .def_prop_rw(
            "rounds_to_bfloat16", [](const WorkerPool& pool) { return pool.tuning.rounds_to_bfloat16; },
            [](WorkerPool& pool, bool rounds) {
                const auto lock = pool.lock();
                pool.tuning.rounds_to_bfloat16 = rounds;
            })
        .def_prop_rw(
            "min_tile_queries", [](const WorkerPool& pool) { return pool.tuning.min_tile_queries; },
            [](WorkerPool& pool, int64_t rows) {
                const auto lock = pool.lock();
                pool.tuning.min_tile_queries = rows;
            })
        .def_prop_rw(
            "overlaps_phases", [](const WorkerPool& pool) { return pool.tuning.overlaps_phases; },
            [](WorkerPool& pool, bool overlaps) {
                const auto lock = pool.lock();
                pool.tuning.overlaps_phases = overlaps;
            });
    m.def("trace_chunks", call_trace_chunks, nb::arg("pool"), nb::arg("is_traced"));
    m.def("isas", available_isas, nb::arg("with_variants"));
    m.def("why_no_amx", why_no_amx);
    m.def("trace_threads", call_trace_threads, nb::arg("pool"), nb::arg("kind"), nb::arg("task_ns"),
          nb::arg("threads").noconvert());
    m.def("time_empty_runs", call_time_empty_runs, nb::arg("pool"), nb::arg("num_runs"),
          nb::arg("num_tasks"));
}

}  // namespace ktdesk
