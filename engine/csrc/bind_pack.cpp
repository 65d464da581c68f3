// Weights: from the file's rows into panels, and into floats.
#include "bindings.h"
#include "pack.h"
#include "panels.h"

namespace ktdesk {

namespace {

void call_pack(WorkerPool& pool, int type, const Blocks2& blocks, const Array<uint8_t, 2>& panels) {
    const Matrix matrix = as_matrix(pool, type, blocks);
    matrix_of(matrix.type, panels.data(), dim(panels, 0), dim(panels, 1),
              std::tuple(matrix.num_rows, matrix.length));
    run_alone(pool, [&] { pack(pool, matrix, panels.data()); });
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
    m.def("dequantize", call_dequantize, nb::arg("pool"), nb::arg("type"), nb::arg("blocks").noconvert(),
          nb::arg("out").noconvert());
}

}  // namespace ktdesk
