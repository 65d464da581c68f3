// What choosing a token asks of the logits of a whole vocabulary.
#include <algorithm>
#include <cstdint>

#include "bindings.h"
#include "sampling.h"

namespace ktdesk {

namespace {

void call_count_not_finite(WorkerPool& pool, const StridedArray<const float, 2>& values,
                           const Array<int32_t, 1>& count) {
    require(values.stride(1) == 1, "count_not_finite: the values of a row must be contiguous");
    require(dim(count, 0) == 1, "count_not_finite: there is one count");
    run_step(pool, {values.data(), count.data()},
             [&pool, values = values.data(), T = dim(values, 0), V = dim(values, 1),
              stride = values.stride(0), count = count.data()] {
                 const int64_t found = count_not_finite(pool, values, T, V, stride);
                 *count = static_cast<int32_t>(std::min<int64_t>(found, INT32_MAX));
             });
}

void call_top_k(const Floats1& values, const Array<int32_t, 1>& ids) {
    require(dim(ids, 0) <= dim(values, 0), "top_k: more asked for than there are");
    nb::gil_scoped_release release;
    top_k(values.data(), dim(values, 0), dim(ids, 0), ids.data());
}

}  // namespace

void bind_sampling(nb::module_& m) {
    m.def("count_not_finite", call_count_not_finite, nb::arg("pool"), nb::arg("values").noconvert(),
          nb::arg("count").noconvert());
    m.def("top_k", call_top_k, nb::arg("values").noconvert(), nb::arg("ids").noconvert());
}

}  // namespace ktdesk
