// Row kernels for AVX2 with FMA and F16C.
#include <immintrin.h>

#include <cstring>

#include "../kernels.h"
#include "../panels.h"
#include "../quantized_rows.h"

namespace ktdesk {
namespace {

alignas(32) constexpr int32_t kFirstLanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

struct Vec {
    using Type = __m256;
    static constexpr int64_t kWidth = 8;

    static Type zero() { return _mm256_setzero_ps(); }
    static Type broadcast(float x) { return _mm256_set1_ps(x); }
    static Type load(const float* p) { return _mm256_loadu_ps(p); }
    static Type load_first(const float* p, int64_t n) { return _mm256_maskload_ps(p, first(n)); }
    static void store(float* p, Type v) { _mm256_storeu_ps(p, v); }
    static void store_first(float* p, Type v, int64_t n) { _mm256_maskstore_ps(p, first(n), v); }
    static Type fma(Type a, Type b, Type sum) { return _mm256_fmadd_ps(a, b, sum); }
    static float sum(Type v) {
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }

  private:
    static __m256i first(int64_t n) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirstLanes + kWidth - n));
    }
};

// 12 accumulators, 3 inputs and a weight: the 16 registers.
constexpr int64_t kTileRows = 4;
constexpr int64_t kTileTokens = 3;

constexpr int64_t kPanelTokens = 4;

#include "dequantize.inl"
#include "dequantize_avx2.inl"
#include "lanes_avx2.inl"
#include "panel_kernels.inl"
#include "quantize_row.inl"
#include "pack_scales.inl"
#include "pack_avx2.inl"
#include "pack_panels.inl"
#include "cache_rows.inl"
#include "vec_math_avx2.inl"
#include "cache_store.inl"
#include "float_panel_kernels.inl"
#include "cache_loads.inl"
#include "attention_kernels.inl"
#include "activation.inl"
#include "probes.inl"
#include "row_kernels.inl"

RowKernels make_avx2_table() {
    RowKernels table = make_table("avx2");
    fill_dequantize_avx2(table.dequantize);
    return table;
}

}  // namespace

const RowKernels& avx2_kernels() {
    static const RowKernels table = make_avx2_table();
    return table;
}

}  // namespace ktdesk
