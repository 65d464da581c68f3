// What module.cpp puts together: each function adds the operations of its file to the module.
#pragma once

#include "arrays.h"
#include "worker_pool.h"

namespace ktdesk {

void bind_pool(nb::module_& m);
void bind_pack(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_experts(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_elementwise(nb::module_& m);
void bind_probes(nb::module_& m);

// Runs an operation without the GIL, alone on its pool.
template <class Operation>
void run_alone(WorkerPool& pool, const Operation& operation) {
    nb::gil_scoped_release release;
    const auto lock = pool.lock();
    operation();
}

}  // namespace ktdesk
