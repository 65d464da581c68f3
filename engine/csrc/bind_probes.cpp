// What the machine can do at best.
#include "bindings.h"
#include "probes.h"

namespace ktdesk {

namespace {

// (seconds, bytes or operations, checksum)
using ProbeTuple = std::tuple<double, double, double>;

template <class Measure>
ProbeTuple probe_alone(WorkerPool& pool, const Measure& measure) {
    Probe probe = {};
    run_alone(pool, [&] { probe = measure(); });
    return {probe.seconds, probe.amount, probe.checksum};
}

void call_touch(WorkerPool& pool, const Array<uint8_t, 1>& data) {
    run_alone(pool, [&] { touch(pool, data.data(), dim(data, 0)); });
}

ProbeTuple call_probe_read(WorkerPool& pool, const Array<const uint8_t, 1>& data) {
    require(dim(data, 0) % 256 == 0, "probe_read: the buffer must be a multiple of 256 bytes");
    return probe_alone(pool, [&] { return probe_read(pool, data.data(), dim(data, 0)); });
}

ProbeTuple call_probe_peak(WorkerPool& pool, const std::string& name, int64_t num_rounds) {
    const PeakLoop* peak = find_peak(pool, name);
    require(peak != nullptr, "probe_peak: the instruction set has no loop of this name");
    require(num_rounds >= 1 && num_rounds <= int64_t{1} << 40, "probe_peak: 1 to 2^40 rounds");
    return probe_alone(pool, [&] { return probe_peak(pool, *peak, num_rounds); });
}

}  // namespace

void bind_probes(nb::module_& m) {
    m.def("touch", call_touch, nb::arg("pool"), nb::arg("data").noconvert());
    m.def("probe_read", call_probe_read, nb::arg("pool"), nb::arg("data").noconvert());
    m.def("probe_peak", call_probe_peak, nb::arg("pool"), nb::arg("name"), nb::arg("num_rounds"));
}

}  // namespace ktdesk
