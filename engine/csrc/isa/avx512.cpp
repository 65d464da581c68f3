// Row kernels for AVX-512 (F, BW, VL, DQ) without VNNI: byte products as AVX2 makes them.
#include <immintrin.h>

#include <cstring>

#include "../kernels.h"
#include "../panels.h"
#include "../quantized_rows.h"

namespace ktdesk {
namespace {

constexpr int64_t kPanelTokens = 4;

#include "vec_avx512.inl"
#include "dequantize.inl"
#include "dequantize_avx2.inl"
#include "lanes_avx2.inl"
#include "panel_kernels.inl"
#include "quantize_row.inl"
#include "pack_scales.inl"
#include "pack_avx2.inl"
#include "pack_panels.inl"
#include "cache_rows.inl"
#include "vec_math_avx512.inl"
#include "cache_store.inl"
#include "float_panel_kernels.inl"
#include "cache_loads.inl"
#include "attention_kernels.inl"
#include "activation.inl"
#include "probes.inl"
#include "row_kernels.inl"

RowKernels make_avx512_table() {
    RowKernels table = make_table("avx512");
    fill_dequantize_avx2(table.dequantize);
    return table;
}

}  // namespace

const RowKernels& avx512_kernels() {
    static const RowKernels table = make_avx512_table();
    return table;
}

}  // namespace ktdesk
