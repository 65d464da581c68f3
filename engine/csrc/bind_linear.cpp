// Products with matrices, and single rows of them.
#include "bindings.h"
#include "linear.h"

namespace ktdesk {

namespace {

void call_linear(WorkerPool& pool, int type, const Blocks2& weight, const PackedShape& packed,
                 const Floats2& x, const OutFloats2& out, const std::optional<Floats1>& bias) {
    const Matrix matrix = as_matrix(pool, type, weight, packed);
    require(dim(x, 1) == matrix.length, "linear: x must have the row length of the weight");
    require(dim(out, 0) == dim(x, 0) && dim(out, 1) == matrix.num_rows, "linear: out must be (tokens, rows)");
    require(!bias || dim(*bias, 0) == matrix.num_rows, "linear: one bias for each row");
    run_step(pool, {x.data(), out.data()},
             [&pool, matrix, weight, bias, x = x.data(), T = dim(x, 0), out = out.data()] {
                 pool.weight_bytes += num_bytes(matrix);
                 linear(pool, matrix, data_or_null(bias), x, T, out);
             });
}

void call_linear_per_head(WorkerPool& pool, int type_id, const Blocks3& weight, const PackedShape& packed,
                          const StridedArray<const float, 3>& x, const Array<float, 3>& out) {
    const WeightType type = checked_type(pool, type_id);
    require_contiguous_rows(weight);
    const int64_t num_heads = dim(weight, 0);
    const HeadMatrices matrices = {matrix_of(type, weight.data(), dim(weight, 1), dim(weight, 2), packed),
                                   weight.stride(0), num_heads};
    const int64_t num_rows = matrices.first.num_rows;
    require(!packed || weight.stride(0) % kCacheLine == 0,
            "the panels of each head must start at a cache line");
    require(dim(x, 1) == num_heads && dim(x, 2) == matrices.first.length && x.stride(2) == 1,
            "linear_per_head: x must be (tokens, heads, row length), its vectors contiguous");
    require(dim(out, 0) == dim(x, 0) && dim(out, 1) == num_heads && dim(out, 2) == num_rows,
            "linear_per_head: out must be (tokens, heads, rows)");
    const HeadVectors vectors = {x.data(), x.stride(0), x.stride(1)};
    run_step(pool, {x.data(), out.data()},
             [&pool, matrices, weight, vectors, T = dim(x, 0), out = out.data()] {
                 pool.weight_bytes += matrices.num_heads * num_bytes(matrices.first);
                 linear_per_head(pool, matrices, vectors, T, out);
             });
}

void call_get_rows(WorkerPool& pool, int type, const Blocks2& weight, const Ids1& ids,
                   const OutFloats2& out) {
    const Matrix matrix = as_matrix(pool, type, weight);
    require(dim(out, 0) == dim(ids, 0) && dim(out, 1) == matrix.length,
            "get_rows: out must be (ids, row length)");
    run_step(pool, {ids.data(), out.data()},
             [&pool, matrix, weight, ids = ids.data(), T = dim(ids, 0), out = out.data()] {
                 check_ids(ids, T, matrix.num_rows, "get_rows: an id is outside the matrix");
                 pool.weight_bytes += T * matrix.row_bytes;
                 get_rows(pool, matrix, ids, T, out);
             });
}

}  // namespace

void bind_linear(nb::module_& m) {
    m.def("linear", call_linear, nb::arg("pool"), nb::arg("type"), nb::arg("weight").noconvert(),
          nb::arg("packed").none(), nb::arg("x").noconvert(), nb::arg("out").noconvert(),
          nb::arg("bias").none().noconvert());
    m.def("linear_per_head", call_linear_per_head, nb::arg("pool"), nb::arg("type"),
          nb::arg("weight").noconvert(), nb::arg("packed").none(), nb::arg("x").noconvert(),
          nb::arg("out").noconvert());
    m.def("get_rows", call_get_rows, nb::arg("pool"), nb::arg("type"), nb::arg("weight").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("out").noconvert());
}

}  // namespace ktdesk
