// Tile kernels for AMX (tile, int8, bf16) beside AVX-512 with VNNI, FP16 and BF16.
#include <immintrin.h>

#include <cstring>

#include "../kernels.h"
#include "../panels.h"
#include "../quantized_rows.h"
#include "../tiles.h"

namespace ktdesk {

const RowKernels& avx512_vnni_kernels();
const TileKernels& amx_integer_tiles();
const TileAttention& amx_tile_attention();

namespace {

constexpr int64_t kPanelTokens = 4;

// Rows are kept 2^90 times as large (row_of_16).
constexpr int kTileScaleExponent = 90;

#include "dequantize.inl"
#include "dequantize_avx2.inl"
#include "lanes_vnni.inl"
#include "panel_kernels.inl"
#include "tile_registers.inl"
#include "tile_unpack.inl"
#include "tile_products.inl"

// Unpacked codes are 2^112 times as small (tile_unpack.inl), and products
// of both stay in the middle of what float32 holds. 16 floats, with the middle two of each quad exchanged.
__m256i row_of_16(const float* x) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(0x1p90f));
    const __m512 exchanged = _mm512_permute_ps(scaled, 0b11'01'10'00);
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(exchanged));
}

void store_tile_row(const float* x, const TileRows& rows, int64_t row) {
    uint8_t* tiles = rows.row(row);
    for (int64_t k = 0; k < rows.length; k += 16) {
        uint8_t* to = tiles + k / kTileValues * rows.tile_bytes() + k % kTileValues * 2;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), row_of_16(x + k));
    }
}

TileKernels make_tile_kernels() {
    TileKernels table = {};
    table.configure = configure;
    table.release = release;
    table.store_row = store_tile_row;
    table.multiply[Q4_0] = multiply_tiles<PanelTiles<Q4_0>>;
    table.multiply[Q4_1] = multiply_tiles<PanelTiles<Q4_1>>;
    table.multiply[Q5_0] = multiply_tiles<PanelTiles<Q5_0>>;
    table.multiply[Q5_1] = multiply_tiles<PanelTiles<Q5_1>>;
    table.multiply[Q8_0] = multiply_tiles<PanelTiles<Q8_0>>;
    table.multiply[Q2_K] = multiply_tiles<PanelTiles<Q2_K>>;
    table.multiply[Q3_K] = multiply_tiles<PanelTiles<Q3_K>>;
    table.multiply[Q4_K] = multiply_tiles<PanelTiles<Q4_K>>;
    table.multiply[Q5_K] = multiply_tiles<PanelTiles<Q5_K>>;
    table.multiply[Q6_K] = multiply_tiles<PanelTiles<Q6_K>>;
    table.multiply[IQ4_NL] = multiply_tiles<PanelTiles<IQ4_NL>>;
    table.multiply[IQ4_XS] = multiply_tiles<PanelTiles<IQ4_XS>>;
    table.multiply[MXFP4] = multiply_tiles<PanelTiles<MXFP4>>;
    table.multiply[F16] = multiply_tiles<HalfTiles<F16>>;
    table.multiply[BF16] = multiply_tiles<HalfTiles<BF16>>;
    table.multiply[F32] = multiply_tiles<FloatTiles>;
    return table;
}

constexpr int64_t kPeakProducts = 4;

#define KTDESK_TILE_PEAK(product)                                                                    \
    asm volatile(product " %%tmm5, %%tmm4, %%tmm0\n\t" product " %%tmm7, %%tmm6, %%tmm1\n\t" product \
                         " %%tmm6, %%tmm5, %%tmm2\n\t" product " %%tmm4, %%tmm7, %%tmm3" ::          \
                             : "memory")

// Four sums in turn over tiles that hold loaded data: tiles that were never loaded are multiplied faster.
template <class Round>
double tile_peak(const uint8_t* operands, int64_t num_rounds, const Round& round) {
    configure();
    KTDESK_TILE_LOAD(4, operands);
    KTDESK_TILE_LOAD(5, operands + kTileBytes);
    KTDESK_TILE_LOAD(6, operands + 2 * kTileBytes);
    KTDESK_TILE_LOAD(7, operands + 3 * kTileBytes);
    KTDESK_TILE_ZERO(0);
    KTDESK_TILE_ZERO(1);
    KTDESK_TILE_ZERO(2);
    KTDESK_TILE_ZERO(3);
    for (int64_t i = 0; i < num_rounds; ++i) round();
    alignas(64) uint8_t sums[4 * kTileBytes];
    KTDESK_TILE_STORE(0, sums);
    KTDESK_TILE_STORE(1, sums + kTileBytes);
    KTDESK_TILE_STORE(2, sums + 2 * kTileBytes);
    KTDESK_TILE_STORE(3, sums + 3 * kTileBytes);
    release();
    double sum = 0;
    for (const uint8_t byte : sums) sum += byte;
    return sum;
}

double multiply_byte_tiles(const uint8_t* operands, int64_t num_rounds) {
    return tile_peak(operands, num_rounds, [] { KTDESK_TILE_PEAK("tdpbssd"); });
}

double multiply_bfloat16_tiles(const uint8_t* operands, int64_t num_rounds) {
    return tile_peak(operands, num_rounds, [] { KTDESK_TILE_PEAK("tdpbf16ps"); });
}

RowKernels make_amx_kernels() {
    static const TileKernels tiles = make_tile_kernels();
    RowKernels table = avx512_vnni_kernels();
    table.name = "amx";
    table.tiles = &amx_integer_tiles();
    table.bfloat16_tiles = &tiles;
    table.tile_attention = &amx_tile_attention();
    int next = 0;
    while (table.peaks[next].name) ++next;
    constexpr int64_t kByteOps = 2 * 16 * 16 * 64;
    table.peaks[next] = {"int8 tiles", kPeakProducts * kByteOps, multiply_byte_tiles};
    table.peaks[next + 1] = {"bf16 tiles", kPeakProducts * kByteOps / 2, multiply_bfloat16_tiles};
    return table;
}

}  // namespace

// Rows as the set without tiles has them.
const RowKernels& amx_kernels() {
    static const RowKernels table = make_amx_kernels();
    return table;
}

}  // namespace ktdesk
