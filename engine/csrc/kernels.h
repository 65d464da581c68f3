// The table of row kernels: what an instruction set computes on rows. One table an instruction set, filled
// in isa/*.cpp; the drivers (linear, expert_mlp, attention) call the table and know no instruction.
#pragma once

#include <cstdint>

#include "quants.h"

namespace ktdesk {

struct QuantizedRows;

// outputs[t][first_row + r] = row r of a panel (panels.h) times row row_ids[t] of x, for r < num_rows <= 16
// and t < num_tokens. A token's result does not depend on the tokens computed with it.
using MultiplyPanel = void (*)(const uint8_t* panel, const QuantizedRows& x, const int32_t* row_ids,
                               int64_t num_tokens, float* const* outputs, int64_t first_row,
                               int64_t num_rows);

struct RowKernels {
    const char* name;

    // By WeightType; null where the engine does not read the type.
    DequantizeRow dequantize[kNumWeightTypes];

    // outputs[t][first_row + r] = sum over k of weights[r * length + k] * inputs[t][k], for r < num_rows and
    // t < num_tokens. Each sum runs over k in the same order whatever the counts are: a token's result does
    // not depend on the tokens computed with it.
    void (*matmul)(const float* weights, int64_t num_rows, int64_t length, const float* const* inputs,
                   int64_t num_tokens, float* const* outputs, int64_t first_row);

    // By WeightType; null where the type has no panels.
    MultiplyPanel multiply_panel[kNumWeightTypes];

    float (*dot)(const float* a, const float* b, int64_t length);

    // sum[i] += scale * x[i]
    void (*add_scaled)(float scale, const float* x, float* sum, int64_t length);
};

}  // namespace ktdesk
