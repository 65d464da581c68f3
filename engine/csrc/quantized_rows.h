// Activations as integers: what the panel kernels multiply codes with.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

// x[t][k] = scales[t] * (128 * high[t][k] + low[t][k]), rounded to the nearest: 15 bits of which each half
// fits a byte product. One scale a row: a few large values then cost the others little, where blocks of eight
// bits would lose their neighbours.
struct QuantizedRows {
    const int8_t* high;    // (num_rows, length), -127..127
    const int8_t* low;     // (num_rows, length), -64..63
    const float* scales;   // (num_rows)
    const float* sums_16;  // (num_rows, length / 16): the integers of each 16 values, added up
    const float* sums_32;  // (num_rows, length / 32)
    int64_t length;        // a multiple of 32
};

// Bytes that the rows take in a buffer.
int64_t quantized_rows_bytes(int64_t num_rows, int64_t length);

// Rows in `memory` (quantized_rows_bytes of it, at a cache line), not yet filled.
QuantizedRows quantized_rows_in(void* memory, int64_t num_rows, int64_t length);

// Fills row `row` from x (length).
void quantize_row(const float* x, int64_t row, const QuantizedRows& rows);

}  // namespace ktdesk
