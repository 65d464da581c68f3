#include "quantized_rows.h"

#include <cmath>
#include <cstring>

namespace ktdesk {

namespace {

constexpr float kLargest = 127 * 128;

// Adding it leaves a number of less than 2^22 rounded to the nearest integer in the low bits.
constexpr float kRounder = 12582912.0f;

// Below this a row counts as zero: its scale could not be inverted.
constexpr float kSmallest = 1e-30f;

// NaN where any value is no finite number.
float largest_magnitude(const float* x, int64_t length) {
    float largest[8] = {}, probes[8] = {};
    for (int64_t k = 0; k < length; k += 8)
        for (int64_t i = 0; i < 8; ++i) {
            const float magnitude = std::fabs(x[k + i]);
            largest[i] = magnitude > largest[i] ? magnitude : largest[i];
            probes[i] += x[k + i] * 0.0f;
        }
    float all = 0;
    for (int i = 0; i < 8; ++i) all = (largest[i] > all ? largest[i] : all) + probes[i];
    return all;
}

}  // namespace

int64_t quantized_rows_bytes(int64_t num_rows, int64_t length) {
    const int64_t floats = 1 + length / 16 + length / 32;
    return num_rows * (2 * length + floats * static_cast<int64_t>(sizeof(float)));
}

QuantizedRows quantized_rows_in(void* memory, int64_t num_rows, int64_t length) {
    int8_t* high = static_cast<int8_t*>(memory);
    int8_t* low = high + num_rows * length;
    float* sums_16 = reinterpret_cast<float*>(low + num_rows * length);
    float* sums_32 = sums_16 + num_rows * (length / 16);
    return {high, low, sums_32 + num_rows * (length / 32), sums_16, sums_32, length};
}

void quantize_row(const float* x, int64_t row, const QuantizedRows& rows) {
    const int64_t length = rows.length;
    int8_t* high = const_cast<int8_t*>(rows.high) + row * length;
    int8_t* low = const_cast<int8_t*>(rows.low) + row * length;
    float* sums_16 = const_cast<float*>(rows.sums_16) + row * (length / 16);
    float* sums_32 = const_cast<float*>(rows.sums_32) + row * (length / 32);
    const float largest = largest_magnitude(x, length);
    const bool is_zero = !(largest >= kSmallest);  // or not finite: then the scale makes the result NaN
    const_cast<float*>(rows.scales)[row] = largest / kLargest;
    if (is_zero) {
        std::memset(high, 0, static_cast<size_t>(length));
        std::memset(low, 0, static_cast<size_t>(length));
        std::memset(sums_16, 0, static_cast<size_t>(length / 16) * sizeof(float));
        std::memset(sums_32, 0, static_cast<size_t>(length / 32) * sizeof(float));
        return;
    }
    const float inverse = kLargest / largest;
    for (int64_t part = 0; part < length / 16; ++part) {
        float sum = 0;
        for (int64_t k = 16 * part; k < 16 * part + 16; ++k) {
            const float rounded = (x[k] * inverse + kRounder) - kRounder;
            const int32_t q = static_cast<int32_t>(rounded);
            const int32_t upper = (q + 64) >> 7;
            high[k] = static_cast<int8_t>(upper);
            low[k] = static_cast<int8_t>(q - 128 * upper);
            sum += rounded;
        }
        sums_16[part] = sum;
    }
    for (int64_t part = 0; part < length / 32; ++part)
        sums_32[part] = sums_16[2 * part] + sums_16[2 * part + 1];
}

}  // namespace ktdesk
