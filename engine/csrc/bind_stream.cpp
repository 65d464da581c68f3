// Streams: operations of a pool on a thread of their own.
#include <memory>
#include <vector>

#include "bindings.h"

namespace ktdesk {

namespace {

void call_synchronize(Stream& stream) {
    nb::gil_scoped_release release;
    stream.synchronize();
}

void call_stop(Stream& stream) {
    nb::gil_scoped_release release;
    stream.stop();
}

// Copies what `from` has now, when the stream comes to it.
void call_upload(WorkerPool& pool, const Array<const uint8_t, 1>& from, const Array<uint8_t, 1>& to) {
    require(dim(from, 0) == dim(to, 0), "upload: as many bytes as there is room for");
    const uint8_t* data = from.data();
    const auto copy = std::make_shared<const std::vector<uint8_t>>(data, data + dim(from, 0));
    run_step(pool, {to.data()}, [copy, to = to.data()] { std::copy(copy->begin(), copy->end(), to); });
}

void call_copy(WorkerPool& pool, const Array<const uint8_t, 1>& from, const Array<uint8_t, 1>& to) {
    require(dim(from, 0) == dim(to, 0), "copy: as many bytes as there is room for");
    run_step(pool, {}, [from, to] { std::copy_n(from.data(), dim(from, 0), to.data()); });
}

void call_pause(WorkerPool& pool, int64_t nanoseconds) {
    run_step(pool, {}, [nanoseconds] { Stream::pause(nanoseconds); });
}

void call_fail(WorkerPool& pool, const std::string& message) {
    run_step(pool, {}, [message] { throw std::runtime_error(message); });
}

void call_fail_memory(WorkerPool& pool) {
    run_step(pool, {}, [] { throw std::bad_alloc(); });
}

}  // namespace

void bind_stream(nb::module_& m) {
    nb::class_<Stream>(m, "Stream")
        .def(nb::init<WorkerPool&>(), nb::arg("pool"), nb::keep_alive<1, 2>(),
             nb::call_guard<nb::gil_scoped_release>())
        .def("synchronize", call_synchronize)
        .def("stop", call_stop)
        .def_prop_ro("num_bytes", [](const Stream& stream) { return stream.arena()->num_bytes(); })
        .def_prop_rw(
            "delay_ns", [](const Stream& stream) { return stream.delay_ns.load(); },
            [](Stream& stream, int64_t delay) { stream.delay_ns = delay; })
        .def_prop_rw(
            "limit_bytes", [](const Stream& stream) { return stream.limit_bytes.load(); },
            [](Stream& stream, int64_t limit) { stream.limit_bytes = limit; });
    m.def("upload", call_upload, nb::arg("pool"), nb::arg("from_").noconvert(), nb::arg("to").noconvert());
    m.def("copy", call_copy, nb::arg("pool"), nb::arg("from_").noconvert(), nb::arg("to").noconvert());
    m.def("pause", call_pause, nb::arg("pool"), nb::arg("nanoseconds"));
    m.def("fail_memory", call_fail_memory, nb::arg("pool"));
    m.def("fail", call_fail, nb::arg("pool"), nb::arg("message"));
}

}  // namespace ktdesk
