// The table of row kernels: what an instruction set computes on rows. One table an instruction set, filled
// in isa/*.cpp; the drivers (linear, expert_mlp, attention) call the table and know no instruction.
#pragma once

#include <cstdint>

#include "activation.h"
#include "attention_tile.h"
#include "quantized_rows.h"
#include "quants.h"
#include "tiles.h"

namespace ktdesk {

// How reading goes on after what a kernel is given: up to `end` in the order of memory, then from `next` on.
// Only asked for ahead, so it may be wrong; and need not be memory at all.
struct Ahead {
    const uint8_t* end;
    const uint8_t* next;

    const uint8_t* at(const uint8_t* p) const { return p < end ? p : next + (p - end); }
};

// Lays num_rows <= 16 rows of `length` values, row_bytes apart at any address, out as one panel (panels.h).
using PackPanel = void (*)(const uint8_t* rows, int64_t row_bytes, int64_t num_rows, int64_t length,
                           uint8_t* panel);

// A panel (panels.h), and the rows of x to multiply it with.
struct PanelProduct {
    const uint8_t* panel;
    const QuantizedRows* x;
    const int32_t* row_ids;
    int64_t num_tokens;
    float* const* outputs;
    int64_t first_row, num_rows;  // num_rows: 1..16
    Ahead ahead;
};

// outputs[t][first_row + r] = row r of the panel times row row_ids[t] of x, for r < num_rows and
// t < num_tokens. A token's result does not depend on the tokens computed with it.
using MultiplyPanel = void (*)(const PanelProduct& product);

// The same for panels of 16-bit floats, whose rows have `length` values, and inputs[t].
using MultiplyFloatPanel = void (*)(const uint8_t* panel, int64_t length, const float* const* inputs,
                                    int64_t num_tokens, float* const* outputs, int64_t first_row,
                                    int64_t num_rows);

// A loop that only multiplies and adds, as fast as the instruction set can (probes.h). run gets operands of
// kPeakOperandBytes, a cache line aligned, and returns what depends on every product.
struct PeakLoop {
    const char* name;   // what is multiplied: int8 or float32
    int64_t round_ops;  // multiplications and additions of one round
    double (*run)(const uint8_t* operands, int64_t num_rounds);
};

constexpr int kMaxPeakLoops = 4;
constexpr int64_t kPeakOperandBytes = 4096;

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
    PackPanel pack_panel[kNumWeightTypes];

    // By WeightType; null where the type has no panels, or where it has those of the other kind.
    MultiplyPanel multiply_panel[kNumWeightTypes];
    MultiplyFloatPanel multiply_float_panel[kNumWeightTypes];

    // Fills row `row` from x (rows.length).
    void (*quantize_row)(const float* x, const QuantizedRows& rows, int64_t row);

    // out[i] = activation of gate[i] and up[i]; out may be one of them.
    void (*activate)(const ActivationRule& rule, const float* gate, const float* up, float* out,
                     int64_t count);

    // sum[i] += scale * x[i]
    void (*add_scaled)(float scale, const float* x, float* sum, int64_t length);

    // By WeightType; null where a cache cannot have the type.
    AttendTile attend_tile[kNumWeightTypes];
    StoreRow store_row[kNumWeightTypes];
    MergeRows merge_rows;
    FinishRow finish_row;

    // Null where the instruction set has no tiles.
    const TileKernels* tiles;  // of integers
    const TileKernels* bfloat16_tiles;
    const TileAttention* tile_attention;

    // Reads num_bytes, a multiple of 256, and returns what depends on all of them.
    double (*read_bytes)(const uint8_t* data, int64_t num_bytes);

    // Those without a name are not there.
    PeakLoop peaks[kMaxPeakLoops];
};

}  // namespace ktdesk
