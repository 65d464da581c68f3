// Weights: from the file's rows into panels, and into floats.
#include "bindings.h"
#include "pack.h"
#include "panels.h"

namespace ktdesk {

namespace {

MatrixStack as_stack(const WorkerPool& pool, int type_id, const Blocks3& blocks) {
    require_contiguous_rows(blocks);
    const WeightType type = checked_type(pool, type_id);
    return {matrix_of(type, blocks.data(), dim(blocks, 1), dim(blocks, 2), {}), dim(blocks, 0),
            blocks.stride(0)};
}

int64_t call_pack(WorkerPool& pool, int type, const Blocks3& blocks, const Array<uint8_t, 3>& panels) {
    const MatrixStack stack = as_stack(pool, type, blocks);
    require(dim(panels, 0) == stack.num_matrices, "pack: panels for each matrix");
    matrix_of(stack.first.type, panels.data(), dim(panels, 1), dim(panels, 2),
              std::tuple(stack.first.num_rows, stack.first.length));
    int64_t bad = -1;
    run_alone(pool, [&] { bad = pack(pool, stack, panels.data()); });
    return bad;
}

int64_t call_check(WorkerPool& pool, int type, const Blocks3& blocks) {
    const MatrixStack stack = as_stack(pool, type, blocks);
    int64_t bad = -1;
    run_alone(pool, [&] { bad = check(pool, stack); });
    return bad;
}

int64_t call_panel_bytes(int type, int64_t length) {
    require(type >= 0 && type < kNumWeightTypes && length >= 0, "no such weight type or length");
    return has_panels(type, length) ? panel_bytes(type, length) : 0;
}

void call_dequantize(WorkerPool& pool, int type, const Blocks2& blocks, const OutFloats2& out) {
    const Matrix matrix = as_matrix(pool, type, blocks);
    require(dim(out, 0) == matrix.num_rows && dim(out, 1) == matrix.length,
            "dequantize: out must be (rows, length)");
    run_alone(pool, [&] {
        pool.run(matrix.num_rows, [&](int64_t r, int) {
            pool.kernels().dequantize[type](matrix.rows + r * matrix.row_bytes,
                                            out.data() + r * matrix.length, matrix.length);
        });
    });
}

}  // namespace

void bind_pack(nb::module_& m) {
    m.def("panel_bytes", call_panel_bytes, nb::arg("type"), nb::arg("length"));
    m.def("pack", call_pack, nb::arg("pool"), nb::arg("type"), nb::arg("blocks").noconvert(),
          nb::arg("panels").noconvert());
    m.def("check", call_check, nb::arg("pool"), nb::arg("type"), nb::arg("blocks").noconvert());
    m.def("dequantize", call_dequantize, nb::arg("pool"), nb::arg("type"), nb::arg("blocks").noconvert(),
          nb::arg("out").noconvert());
}

}  // namespace ktdesk
