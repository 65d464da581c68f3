// Products on tiles as 16-bit integers: AMX with int8, beside AVX-512 with VNNI.
#include <immintrin.h>

#include <cstring>

#include "../kernels.h"
#include "../panels.h"
#include "../quantized_rows.h"
#include "../tiles.h"

namespace ktdesk {
namespace {

constexpr int64_t kPanelTokens = 4;

#include "dequantize.inl"
#include "dequantize_avx2.inl"
#include "lanes_vnni.inl"
#include "panel_kernels.inl"
#include "tile_registers.inl"
#include "integer_tile_unpack.inl"
#include "integer_tile_steps.inl"
#include "integer_tile_products.inl"

TileKernels make_tile_kernels() {
    TileKernels table = {};
    table.configure = configure;
    table.release = release;
    table.store_row = store_integer_row;
    table.multiply[Q4_0] = multiply_integers<PanelIntegers<Q4_0>>;
    table.multiply[Q4_1] = multiply_integers<PanelIntegers<Q4_1>>;
    table.multiply[Q5_0] = multiply_integers<PanelIntegers<Q5_0>>;
    table.multiply[Q5_1] = multiply_integers<PanelIntegers<Q5_1>>;
    table.multiply[Q8_0] = multiply_integers<PanelIntegers<Q8_0>>;
    table.multiply[Q2_K] = multiply_integers<PanelIntegers<Q2_K>>;
    table.multiply[Q3_K] = multiply_integers<PanelIntegers<Q3_K>>;
    table.multiply[Q4_K] = multiply_integers<PanelIntegers<Q4_K>>;
    table.multiply[Q5_K] = multiply_integers<PanelIntegers<Q5_K>>;
    table.multiply[Q6_K] = multiply_integers<PanelIntegers<Q6_K>>;
    table.multiply[IQ4_NL] = multiply_integers<PanelIntegers<IQ4_NL>>;
    table.multiply[IQ4_XS] = multiply_integers<PanelIntegers<IQ4_XS>>;
    table.multiply[MXFP4] = multiply_integers<PanelIntegers<MXFP4>>;
    table.multiply[F16] = multiply_integers<HalfPanelIntegers<F16>>;
    table.multiply[BF16] = multiply_integers<HalfPanelIntegers<BF16>>;
    table.multiply[F32] = multiply_integers<FloatPanelIntegers>;
    return table;
}

}  // namespace

const TileKernels& amx_integer_tiles() {
    static const TileKernels table = make_tile_kernels();
    return table;
}

}  // namespace ktdesk
