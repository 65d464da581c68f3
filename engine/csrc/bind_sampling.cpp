// What choosing a token asks of the logits of a whole vocabulary.
#include "bindings.h"
#include "sampling.h"

namespace ktdesk {

namespace {

bool call_all_finite(const StridedArray<const float, 2>& values) {
    require(values.stride(1) == 1, "all_finite: the values of a row must be contiguous");
    nb::gil_scoped_release release;
    for (int64_t r = 0; r < dim(values, 0); ++r)
        if (!all_finite(values.data() + r * values.stride(0), dim(values, 1))) return false;
    return true;
}

void call_top_k(const Floats1& values, const Array<int32_t, 1>& ids) {
    require(dim(ids, 0) <= dim(values, 0), "top_k: more asked for than there are");
    nb::gil_scoped_release release;
    top_k(values.data(), dim(values, 0), dim(ids, 0), ids.data());
}

}  // namespace

void bind_sampling(nb::module_& m) {
    m.def("all_finite", call_all_finite, nb::arg("values").noconvert());
    m.def("top_k", call_top_k, nb::arg("values").noconvert(), nb::arg("ids").noconvert());
}

}  // namespace ktdesk
