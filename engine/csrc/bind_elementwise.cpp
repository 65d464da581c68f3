// Norms and rotary positions.
#include "bindings.h"
#include "elementwise.h"

namespace ktdesk {

namespace {

void call_rms_norm(WorkerPool& pool, const Floats2& x, const Floats1& weight, float epsilon,
                   const OutFloats2& out) {
    require(dim(weight, 0) == dim(x, 1) && dim(out, 0) == dim(x, 0) && dim(out, 1) == dim(x, 1),
            "rms_norm: x and out must have rows as long as the weight");
    run_alone(pool,
              [&] { rms_norm(pool, x.data(), weight.data(), epsilon, dim(x, 0), dim(x, 1), out.data()); });
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
    run_alone(pool, [&] { rope(pool, r); });
}

}  // namespace

void bind_elementwise(nb::module_& m) {
    m.def("rms_norm", call_rms_norm, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("weight").noconvert(),
          nb::arg("epsilon"), nb::arg("out").noconvert());
    m.def("rope", call_rope, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("cosines").noconvert(),
          nb::arg("sines").noconvert(), nb::arg("pairing"));
}

}  // namespace ktdesk
