// What module.cpp puts together: each function adds the operations of its file to the module. And how they
// run.
#pragma once

#include <chrono>
#include <initializer_list>
#include <utility>

#include "arrays.h"
#include "program.h"
#include "stream.h"
#include "worker_pool.h"

namespace ktdesk {

void bind_pool(nb::module_& m);
void bind_pack(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_experts(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_elementwise(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_probes(nb::module_& m);
void bind_program(nb::module_& m);
void bind_stream(nb::module_& m);
void bind_handoff(nb::module_& m);

// Runs an operation without the GIL, alone on its pool.
template <class Operation>
void run_alone(WorkerPool& pool, const Operation& operation) {
    nb::gil_scoped_release release;
    const auto lock = pool.lock();
    const auto started = std::chrono::steady_clock::now();
    operation();
    pool.busy_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - started).count();
}

// The program that takes up what the calling thread does on the pool, or null.
inline Program* recording_program(const WorkerPool& pool) {
    return pool.recording && pool.recording->records() ? pool.recording : nullptr;
}

// The same for an operation of a decode step, which a program may take up: so it checks its ids itself, has
// copies of the arrays that stay the same from step to step, and only pointers to those that change,
// `touched`.
template <class Step>
void run_step(WorkerPool& pool, std::initializer_list<const void*> touched, const Step& step) {
    if (Program* program = recording_program(pool)) program->add(touched, step);
    if (pool.stream)
        pool.stream->submit([&pool, step] {
            pool.stream->pause_between();
            step();
        });
    else
        run_alone(pool, step);
}

}  // namespace ktdesk
