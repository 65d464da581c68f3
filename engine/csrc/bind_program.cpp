// Programs: operations recorded once and replayed.
#include <memory>

#include "bindings.h"
#include "program.h"

namespace ktdesk {

namespace {

using Memory = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>, nb::c_contig>;

// A block of an arena, which goes back when Python lets go of the array.
Memory as_array(const std::shared_ptr<Arena>& arena, uint8_t* block, size_t bytes) {
    struct Taken {
        std::shared_ptr<Arena> arena;
        uint8_t* data;
    };
    auto taken = std::make_unique<Taken>(arena, block);
    uint8_t* data = taken->data;
    const nb::capsule owner(taken.release(), [](void* erased) noexcept {
        const std::unique_ptr<Taken> taken(static_cast<Taken*>(erased));
        taken->arena->give_back(taken->data);
    });
    return {data, {bytes}, owner};
}

Memory take(const Program& program, size_t bytes) {
    return as_array(program.arena(), program.arena()->take(bytes), bytes);
}

std::optional<Memory> take_where_recorded(const WorkerPool& pool, size_t bytes) {
    if (const Program* program = recording_program(pool)) return take(*program, bytes);
    if (pool.stream) return as_array(pool.stream->arena(), pool.stream->take(bytes), bytes);
    return {};
}

void call_replay(Program& program) {
    if (Stream* stream = program.pool().stream) return stream->submit([&program] { program.replay(); });
    run_alone(program.pool(), [&] { program.replay(); });
}

}  // namespace

void bind_program(nb::module_& m) {
    nb::class_<Program>(m, "Program")
        .def(nb::init<WorkerPool&>(), nb::arg("pool"), nb::keep_alive<1, 2>())
        .def("take", take, nb::arg("num_bytes"))
        .def("begin", &Program::begin)
        .def("end", &Program::end)
        .def("replay", call_replay)
        .def_prop_ro("num_steps", &Program::num_steps)
        .def_prop_ro("num_bytes", [](const Program& program) { return program.arena()->num_bytes(); });
    m.def("take_where_recorded", take_where_recorded, nb::arg("pool"), nb::arg("num_bytes"));
}

}  // namespace ktdesk
