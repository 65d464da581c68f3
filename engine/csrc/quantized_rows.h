// Activations as integers: what the panel kernels multiply codes with.
#pragma once

#include <cstdint>

namespace ktdesk {

// x[t][k] = scale of t * (128 * high[t][k] + low[t][k]), rounded to the nearest: 15 bits of which each half
// fits a byte product. One scale a row: a few large values then cost the others little, where blocks of eight
// bits would lose their neighbours.
//
// A row is one stretch of memory, so that a kernel needs one address for each:
//   for each group of 32 values a cache line: 32 bytes high (-127..127), 32 bytes low (-64..63)
//   length / 32 floats: the integers of each 32 values, added up
//   length / 16 floats: those of each 16
//   the scale, a float
// and is padded to a cache line.
struct QuantizedRows {
    uint8_t* data;   // at a cache line
    int64_t length;  // a multiple of 32

    static constexpr int64_t kGroupLine = 64, kLow = 32;

    int64_t sums_32() const { return 2 * length; }
    int64_t sums_16() const { return sums_32() + length / 8; }
    int64_t scale() const { return sums_16() + length / 4; }
    int64_t row_bytes() const { return (scale() + 4 + kGroupLine - 1) / kGroupLine * kGroupLine; }
    uint8_t* row(int64_t r) const { return data + r * row_bytes(); }
};

}  // namespace ktdesk
