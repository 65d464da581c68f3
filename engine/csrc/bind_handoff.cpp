// The hand-off between an accelerator and the CPU, and both sides of it.
#include <memory>

#include "bindings.h"
#include "cpu_share.h"
#include "handoff.h"

namespace ktdesk {

namespace {

using Counts = Array<int64_t, 1>;

void make_hand_off(HandOff* self, const Array<uint8_t, 1>& memory, int64_t num_layers, int64_t max_tokens,
                   int64_t hidden, int64_t num_used) {
    require(num_layers > 0 && max_tokens > 0 && hidden > 0 && num_used > 0,
            "a hand-off has sizes of at least 1");
    require(reinterpret_cast<uintptr_t>(memory.data()) % 64 == 0 &&
                dim(memory, 0) >= HandOff::num_bytes(num_layers, max_tokens, hidden, num_used),
            "a hand-off needs memory of num_bytes that starts at a cache line");
    new (self) HandOff(memory.data(), num_layers, max_tokens, hidden, num_used);
}

void require_layer(const HandOff& hand_off, int64_t layer, int64_t num_tokens) {
    require(layer >= 0 && layer < hand_off.num_layers, "a hand-off has no such layer");
    require(num_tokens > 0 && num_tokens <= hand_off.max_tokens,
            "more tokens than the hand-off has room for");
}

// From now on a failure of the stream lets the CPU go.
void call_fail_with(HandOff& hand_off, Stream& stream) {
    stream.on_error([&hand_off] { hand_off.fail(); });
}

// Offsets of an area's parts and of the flags, in bytes from where the memory begins.
nb::tuple offsets(const HandOff& hand_off, int64_t layer) {
    require_layer(hand_off, layer, 1);
    const auto* memory = reinterpret_cast<const uint8_t*>(&hand_off.ready(0));
    const HandOff::Area area = hand_off.area(layer);
    const auto offset = [&](const void* data) { return static_cast<const uint8_t*>(data) - memory; };
    return nb::make_tuple(offset(&hand_off.ready(layer)), offset(&hand_off.done(layer)), offset(area.x),
                          offset(area.ids), offset(area.weights), offset(area.out));
}

// The accelerator's side, for one whose operations are a host thread's.
void call_hand_over(WorkerPool& pool, HandOff& hand_off, int64_t layer, const Floats2& x, const Ids2& ids,
                    const Floats2& weights) {
    const int64_t T = dim(x, 0);
    require_layer(hand_off, layer, T);
    require(dim(x, 1) == hand_off.hidden && dim(ids, 0) == T && dim(ids, 1) == hand_off.num_used &&
                dim(weights, 0) == T && dim(weights, 1) == hand_off.num_used,
            "hand_over: x must be (tokens, H), ids and weights (tokens, used)");
    run_step(pool, {x.data(), ids.data(), weights.data()},
             [&hand_off, layer, T, x = x.data(), ids = ids.data(), weights = weights.data()] {
                 const HandOff::Area area = hand_off.area(layer);
                 std::copy_n(x, T * hand_off.hidden, area.x);
                 std::copy_n(ids, T * hand_off.num_used, area.ids);
                 std::copy_n(weights, T * hand_off.num_used, area.weights);
                 HandOff::give(hand_off.ready(layer));
             });
}

void call_take_back(WorkerPool& pool, HandOff& hand_off, int64_t layer, const OutFloats2& out) {
    const int64_t T = dim(out, 0);
    require_layer(hand_off, layer, T);
    require(dim(out, 1) == hand_off.hidden, "take_back: out must be (tokens, H)");
    run_step(pool, {out.data()}, [&hand_off, layer, T, out = out.data()] {
        hand_off.take(hand_off.done(layer), "the CPU");
        std::copy_n(hand_off.area(layer).out, T * hand_off.hidden, out);
    });
}

// A flag alone, as an event between two streams.
void call_signal(WorkerPool& pool, HandOff& hand_off, int64_t layer) {
    require_layer(hand_off, layer, 1);
    run_step(pool, {}, [&hand_off, layer] { HandOff::give(hand_off.ready(layer)); });
}

void call_wait(WorkerPool& pool, HandOff& hand_off, int64_t layer) {
    require_layer(hand_off, layer, 1);
    run_step(pool, {}, [&hand_off, layer] { hand_off.take(hand_off.ready(layer), "the other stream"); });
}

// The CPU's side.
void call_cpu_share(WorkerPool& pool, HandOff& hand_off, int64_t layer, int64_t num_tokens,
                    const MlpWeights& weights, const ActivationKind& activation, bool weighs_inputs,
                    const Ids1& slot_of_expert, const Counts& counts, const std::optional<Ids1>& num_deferred,
                    const OutFloats2& pending, const Array<int32_t, 1>& has_pending) {
    require_layer(hand_off, layer, num_tokens);
    const ExpertMlp mlp = as_mlp(pool, weights, activation, weighs_inputs);
    require(mlp.down.first.num_rows == hand_off.hidden,
            "cpu_share: the experts' width is not the hand-off's");
    require(dim(slot_of_expert, 0) == mlp.num_experts && dim(counts, 0) == mlp.num_experts,
            "cpu_share: a slot and a count for each expert");
    require(dim(pending, 0) >= num_tokens && dim(pending, 1) == hand_off.hidden && dim(has_pending, 0) == 1 &&
                (!num_deferred || dim(*num_deferred, 0) == 1),
            "cpu_share: pending must be (tokens, H), and each number one");
    const auto share = std::make_shared<CpuShare>(
        CpuShare{hand_off, layer, num_tokens, mlp, slot_of_expert.data(), counts.data(),
                 num_deferred ? num_deferred->data() : nullptr, pending.data(), has_pending.data()});
    run_step(pool, {}, [&pool, share, weights, slot_of_expert, counts, num_deferred, pending, has_pending] {
        run_cpu_share(pool, *share);
    });
}

}  // namespace

void bind_handoff(nb::module_& m) {
    nb::exception<HandOffError>(m, "HandOffError", PyExc_RuntimeError);
    nb::class_<HandOff>(m, "HandOff")
        .def("__init__", make_hand_off, nb::arg("memory").noconvert(), nb::arg("num_layers"),
             nb::arg("max_tokens"), nb::arg("hidden"), nb::arg("num_used"), nb::keep_alive<1, 2>())
        .def("fail", &HandOff::fail)
        .def("fail_with", call_fail_with, nb::arg("stream"), nb::keep_alive<2, 1>())
        .def("reset", &HandOff::reset)
        .def_prop_ro("has_failed", &HandOff::has_failed)
        .def("offsets", offsets, nb::arg("layer"))
        .def_prop_rw(
            "timeout_ns", [](const HandOff& hand_off) { return hand_off.timeout_ns.load(); },
            [](HandOff& hand_off, int64_t timeout) { hand_off.timeout_ns = timeout; });
    m.def("flag_functions", [] {
        return nb::make_tuple(reinterpret_cast<uintptr_t>(&give_flag),
                              reinterpret_cast<uintptr_t>(&take_flag));
    });
    m.def("hand_off_bytes", &HandOff::num_bytes, nb::arg("num_layers"), nb::arg("max_tokens"),
          nb::arg("hidden"), nb::arg("num_used"));
    m.def("hand_over", call_hand_over, nb::arg("pool"), nb::arg("hand_off"), nb::arg("layer"),
          nb::arg("x").noconvert(), nb::arg("ids").noconvert(), nb::arg("weights").noconvert());
    m.def("take_back", call_take_back, nb::arg("pool"), nb::arg("hand_off"), nb::arg("layer"),
          nb::arg("out").noconvert());
    m.def("signal", call_signal, nb::arg("pool"), nb::arg("hand_off"), nb::arg("layer"));
    m.def("wait", call_wait, nb::arg("pool"), nb::arg("hand_off"), nb::arg("layer"));
    m.def("cpu_share", call_cpu_share, nb::arg("pool"), nb::arg("hand_off"), nb::arg("layer"),
          nb::arg("num_tokens"), nb::arg("weights").noconvert(), nb::arg("activation"),
          nb::arg("weighs_inputs"), nb::arg("slot_of_expert").noconvert(), nb::arg("counts").noconvert(),
          nb::arg("num_deferred").none().noconvert(), nb::arg("pending").noconvert(),
          nb::arg("has_pending").noconvert());
}

}  // namespace ktdesk
