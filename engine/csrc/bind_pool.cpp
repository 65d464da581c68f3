// The worker pool, and the instruction sets that it can have.
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "dispatch.h"

namespace ktdesk {

namespace {

void make_pool(WorkerPool* self, int num_threads, const std::string& isa) {
    const RowKernels* kernels = find_row_kernels(isa);
    require(num_threads >= 1, "a pool needs at least one thread");
    require(kernels != nullptr, "this machine has no such instruction set");
    new (self) WorkerPool(num_threads, *kernels);
}

}  // namespace

void bind_pool(nb::module_& m) {
    nb::class_<WorkerPool>(m, "WorkerPool")
        .def("__init__", make_pool, nb::arg("num_threads"), nb::arg("isa"))
        .def_prop_ro("num_threads", &WorkerPool::num_threads)
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
            "overlaps_phases", [](const WorkerPool& pool) { return pool.tuning.overlaps_phases; },
            [](WorkerPool& pool, bool overlaps) {
                const auto lock = pool.lock();
                pool.tuning.overlaps_phases = overlaps;
            });
    m.def("isas", available_isas, nb::arg("with_variants"));
    m.def("why_no_amx", why_no_amx);
}

}  // namespace ktdesk
