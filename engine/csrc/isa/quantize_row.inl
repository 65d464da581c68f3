// Fills a row of activations as integers (quantized_rows.h). Plain loops: the compiler makes them wide.

constexpr float kLargestInteger = 127 * 128;

// Adding it leaves a number of less than 2^22 rounded to the nearest integer in the low bits.
constexpr float kRounder = 12582912.0f;

// Below this a row counts as zero: its scale could not be inverted.
constexpr float kSmallestMagnitude = 1e-30f;

// NaN where any value is no finite number.
float largest_magnitude(const float* x, int64_t length) {
    float largest[32] = {}, probes[32] = {};
    for (int64_t k = 0; k < length; k += 32)
        for (int i = 0; i < 32; ++i) {
            const float magnitude = __builtin_fabsf(x[k + i]);
            largest[i] = magnitude > largest[i] ? magnitude : largest[i];
            probes[i] += x[k + i] * 0.0f;
        }
    float all = 0;
    for (int i = 0; i < 32; ++i) all = (largest[i] > all ? largest[i] : all) + probes[i];
    return all;
}

// Writes a group's two planes and returns the sums of its halves.
void quantize_group(const float* x, float inverse, int8_t* high, int8_t* low, float* sums_16) {
    int32_t q[32];
    for (int i = 0; i < 32; ++i) q[i] = static_cast<int32_t>((x[i] * inverse + kRounder) - kRounder);
    for (int i = 0; i < 32; ++i) {
        const int32_t upper = (q[i] + 64) >> 7;
        high[i] = static_cast<int8_t>(upper);
        low[i] = static_cast<int8_t>(q[i] - 128 * upper);
    }
    int32_t sums[2] = {};
    for (int i = 0; i < 16; ++i) {
        sums[0] += q[i];
        sums[1] += q[i + 16];
    }
    sums_16[0] = static_cast<float>(sums[0]);
    sums_16[1] = static_cast<float>(sums[1]);
}

void quantize_row(const float* x, const QuantizedRows& rows, int64_t row) {
    uint8_t* to = rows.row(row);
    const float largest = largest_magnitude(x, rows.length);
    const float scale = largest / kLargestInteger;  // not finite where a value is not: then so is the result
    const bool is_zero = !(largest >= kSmallestMagnitude);
    if (is_zero) {
        memset(to, 0, static_cast<size_t>(rows.scale()));
        memcpy(to + rows.scale(), &scale, sizeof(float));
        return;
    }
    float* sums_32 = reinterpret_cast<float*>(to + rows.sums_32());
    float* sums_16 = reinterpret_cast<float*>(to + rows.sums_16());
    const float inverse = kLargestInteger / largest;
    for (int64_t group = 0; group < rows.length / 32; ++group) {
        int8_t* line = reinterpret_cast<int8_t*>(to + group * QuantizedRows::kGroupLine);
        quantize_group(x + 32 * group, inverse, line, line + QuantizedRows::kLow, sums_16 + 2 * group);
        sums_32[group] = sums_16[2 * group] + sums_16[2 * group + 1];
    }
    memcpy(to + rows.scale(), &scale, sizeof(float));
}
