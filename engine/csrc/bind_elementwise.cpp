// Norms, rotary positions, and what is done element by element.
#include "bindings.h"
#include "elementwise.h"

namespace ktdesk {

namespace {

using StridedFloats2 = StridedArray<const float, 2>;
using StridedFloats3 = StridedArray<const float, 3>;

void call_rms_norm(WorkerPool& pool, const StridedFloats2& x, const Floats1& weight, float epsilon,
                   const StridedArray<float, 2>& out) {
    const int64_t num_rows = dim(x, 0), length = dim(x, 1);
    require(dim(weight, 0) == length && dim(out, 0) == num_rows && dim(out, 1) == length,
            "rms_norm: x and out must have rows as long as the weight");
    require(x.stride(1) == 1 && out.stride(1) == 1, "rms_norm: the elements of a row must be contiguous");
    const Rows<const float> from = {x.data(), x.stride(0)};
    const Rows<float> to = {out.data(), out.stride(0)};
    run_step(pool, {from.data, to.data}, [&pool, from, weight, epsilon, num_rows, length, to] {
        rms_norm(pool, from, weight.data(), epsilon, num_rows, length, to);
    });
}

void call_add(WorkerPool& pool, const Floats2& x, const Floats2& y, const OutFloats2& out) {
    const int64_t num_rows = dim(x, 0), length = dim(x, 1);
    require(dim(y, 0) == num_rows && dim(out, 0) == num_rows && dim(y, 1) == length && dim(out, 1) == length,
            "add: x, y and out must have one shape");
    run_step(pool, {x.data(), y.data(), out.data()},
             [&pool, x = x.data(), y = y.data(), num_rows, length, out = out.data()] {
                 add(pool, x, y, num_rows, length, out);
             });
}

void call_gate(WorkerPool& pool, const Floats2& x, const Floats2& gates, const OutFloats2& out) {
    const int64_t num_rows = dim(x, 0), length = dim(x, 1);
    require(dim(gates, 0) == num_rows && dim(gates, 1) == 1, "gate: one gate for each row");
    require(dim(out, 0) == num_rows && dim(out, 1) == length, "gate: x and out must have one shape");
    run_step(pool, {x.data(), gates.data(), out.data()},
             [&pool, x = x.data(), gates = gates.data(), num_rows, length, out = out.data()] {
                 gate(pool, x, gates, num_rows, length, out);
             });
}

Heads as_heads(const StridedFloats3& array) {
    require(array.stride(2) == 1, "the elements of a head must be contiguous");
    return {array.data(), array.stride(0), array.stride(1), dim(array, 2)};
}

void call_join_heads(WorkerPool& pool, const StridedFloats3& first, const StridedFloats3& second,
                     const Array<float, 3>& out) {
    const int64_t T = dim(first, 0), num_heads = dim(first, 1);
    const Heads a = as_heads(first), b = as_heads(second);
    require(
        dim(second, 0) == T && dim(out, 0) == T && dim(second, 1) == num_heads && dim(out, 1) == num_heads,
        "join_heads: all must have as many tokens and heads");
    require(dim(out, 2) == a.length + b.length, "join_heads: out must be as long as both");
    run_step(pool, {a.data, b.data, out.data()},
             [&pool, a, b, T, num_heads, out = out.data()] { join_heads(pool, a, b, T, num_heads, out); });
}

void call_rope(WorkerPool& pool, const StridedArray<float, 3>& x, const Floats2& cosines,
               const Floats2& sines, int pairing) {
    const int64_t T = dim(x, 0), num_pairs = dim(cosines, 1);
    require(pairing == 0 || pairing == 1, "rope: unknown pairing");
    require(x.stride(2) == 1 && 2 * num_pairs <= dim(x, 2), "rope: heads must hold all pairs, contiguously");
    require(dim(cosines, 0) == T && dim(sines, 0) == T && dim(sines, 1) == num_pairs,
            "rope: cosines and sines must be (tokens, pairs)");
    const Rope r = {x.data(),     T,           dim(x, 1),
                    x.stride(0),  x.stride(1), cosines.data(),
                    sines.data(), num_pairs,   static_cast<RopePairing>(pairing)};
    run_step(pool, {r.x, r.cosines, r.sines}, [&pool, r] { rope(pool, r); });
}

void call_turns(WorkerPool& pool, const Ids1& positions, const Array<const double, 1>& frequencies,
                double magnitude, const OutFloats2& cosines, const OutFloats2& sines) {
    const Turns t = {positions.data(),    frequencies.data(), magnitude,   dim(positions, 0),
                     dim(frequencies, 0), cosines.data(),     sines.data()};
    for (const OutFloats2* out : {&cosines, &sines})
        require(dim(*out, 0) == t.num_tokens && dim(*out, 1) == t.num_pairs,
                "turns: cosines and sines must be (tokens, pairs)");
    run_step(pool, {t.positions, t.cosines, t.sines}, [&pool, t, frequencies] { turns(pool, t); });
}

}  // namespace

void bind_elementwise(nb::module_& m) {
    m.def("rms_norm", call_rms_norm, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("weight").noconvert(),
          nb::arg("epsilon"), nb::arg("out").noconvert());
    m.def("add", call_add, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("y").noconvert(),
          nb::arg("out").noconvert());
    m.def("gate", call_gate, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("gates").noconvert(),
          nb::arg("out").noconvert());
    m.def("join_heads", call_join_heads, nb::arg("pool"), nb::arg("first").noconvert(),
          nb::arg("second").noconvert(), nb::arg("out").noconvert());
    m.def("rope", call_rope, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("cosines").noconvert(),
          nb::arg("sines").noconvert(), nb::arg("pairing"));
    m.def("turns", call_turns, nb::arg("pool"), nb::arg("positions").noconvert(),
          nb::arg("frequencies").noconvert(), nb::arg("magnitude"), nb::arg("cosines").noconvert(),
          nb::arg("sines").noconvert());
}

}  // namespace ktdesk
