// Row kernels in plain C++, for any processor.
#include <cstring>

#include "../kernels.h"
#include "../panels.h"
#include "../quantized_rows.h"

namespace ktdesk {
namespace {

// Four lanes without intrinsics: enough for a compiler to use the narrow vectors that every target has.
struct Vec {
    struct Type {
        float lane[4];
    };
    static constexpr int64_t kWidth = 4;

    static Type zero() { return {}; }
    static Type broadcast(float x) { return {{x, x, x, x}}; }
    static Type load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
    static Type load_first(const float* p, int64_t n) {
        Type v = {};
        for (int64_t i = 0; i < n; ++i) v.lane[i] = p[i];
        return v;
    }
    static void store(float* p, Type v) { store_first(p, v, kWidth); }
    static void store_first(float* p, Type v, int64_t n) {
        for (int64_t i = 0; i < n; ++i) p[i] = v.lane[i];
    }
    static Type fma(Type a, Type b, Type sum) {
        for (int i = 0; i < 4; ++i) sum.lane[i] += a.lane[i] * b.lane[i];
        return sum;
    }
    static float sum(Type v) { return (v.lane[0] + v.lane[2]) + (v.lane[1] + v.lane[3]); }
};

constexpr int64_t kTileRows = 4;
constexpr int64_t kTileTokens = 2;

constexpr int64_t kPanelTokens = 2;

#include "dequantize.inl"
#include "lanes_scalar.inl"
#include "panel_kernels.inl"
#include "quantize_row.inl"
#include "pack_scales.inl"
#include "pack_scalar.inl"
#include "pack_panels.inl"
#include "cache_rows.inl"
#include "vec_math_scalar.inl"
#include "cache_store.inl"
#include "float_panel_kernels.inl"
#include "cache_loads.inl"
#include "attention_kernels.inl"
#include "activation.inl"
#include "probes.inl"
#include "row_kernels.inl"

}  // namespace

const RowKernels& scalar_kernels() {
    static const RowKernels table = make_table("scalar");
    return table;
}

}  // namespace ktdesk
