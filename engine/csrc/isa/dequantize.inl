// Blocks of weights to floats, in plain C++. An ISA file includes this inside its anonymous namespace; the
// results are bit for bit those of ktdesk_engine/quants/formats.py, whose docstrings hold the formulas.
//
// decode(block, out) is overloaded on the block's type and writes Block::kValues floats. Blocks and rows may
// start at any address. `out` must not overlap the blocks.

constexpr int8_t kIQ4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Twice the values of the 4-bit floats E2M1; their negative zero reads as plain zero.
constexpr int8_t kFP4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

template <typename T>
T load_as(const uint8_t* bytes) {
    T value;
    memcpy(&value, bytes, sizeof(T));
    return value;
}

float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float half_to_float(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | magnitude << 13);  // infinite or NaN
    if (magnitude >= 0x0400) return float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

float half_at(const uint8_t* bytes) { return half_to_float(load_as<uint16_t>(bytes)); }

// 2 ** (exponent - 128)
float power_of_two(uint8_t exponent) {
    return float_of_bits(exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23);
}

float to_float(int x) { return static_cast<float>(x); }

void decode(const BlockQ4_0& block, float* __restrict out) {
    const float d = half_at(block.d);
    for (int i = 0; i < 16; ++i) {
        out[i] = d * to_float((block.q[i] & 15) - 8);
        out[16 + i] = d * to_float((block.q[i] >> 4) - 8);
    }
}

void decode(const BlockQ4_1& block, float* __restrict out) {
    const float d = half_at(block.d), m = half_at(block.m);
    for (int i = 0; i < 16; ++i) {
        out[i] = d * to_float(block.q[i] & 15) + m;
        out[16 + i] = d * to_float(block.q[i] >> 4) + m;
    }
}

void decode(const BlockQ5_0& block, float* __restrict out) {
    const float d = half_at(block.d);
    const uint32_t fifth = load_as<uint32_t>(block.fifth);
    for (int i = 0; i < 16; ++i) {
        const int low = (block.q[i] & 15) | (fifth >> i & 1) << 4;
        const int high = block.q[i] >> 4 | (fifth >> (16 + i) & 1) << 4;
        out[i] = d * to_float(low - 16);
        out[16 + i] = d * to_float(high - 16);
    }
}

void decode(const BlockQ5_1& block, float* __restrict out) {
    const float d = half_at(block.d), m = half_at(block.m);
    const uint32_t fifth = load_as<uint32_t>(block.fifth);
    for (int i = 0; i < 16; ++i) {
        const int low = (block.q[i] & 15) | (fifth >> i & 1) << 4;
        const int high = block.q[i] >> 4 | (fifth >> (16 + i) & 1) << 4;
        out[i] = d * to_float(low) + m;
        out[16 + i] = d * to_float(high) + m;
    }
}

void decode(const BlockQ8_0& block, float* __restrict out) {
    const float d = half_at(block.d);
    for (int i = 0; i < 32; ++i) out[i] = d * to_float(block.q[i]);
}

void decode(const BlockIQ4_NL& block, float* __restrict out) {
    const float d = half_at(block.d);
    for (int i = 0; i < 16; ++i) {
        out[i] = d * to_float(kIQ4Levels[block.q[i] & 15]);
        out[16 + i] = d * to_float(kIQ4Levels[block.q[i] >> 4]);
    }
}

void decode(const BlockMXFP4& block, float* __restrict out) {
    const float d = power_of_two(block.exponent);
    for (int i = 0; i < 16; ++i) {
        out[i] = d * to_float(kFP4Levels[block.q[i] & 15]);
        out[16 + i] = d * to_float(kFP4Levels[block.q[i] >> 4]);
    }
}

// num_bytes bytes of num_digits ternary digits: first the first digits of all bytes, then the second ones. A
// byte is its digits as a binary fraction, rounded up.
float* decode_ternary(const uint8_t* q, int num_bytes, int num_digits, float d, float* __restrict out) {
    int power = 1;
    for (int digit = 0; digit < num_digits; ++digit, power *= 3) {
        for (int i = 0; i < num_bytes; ++i) out[i] = d * to_float((q[i] * power & 255) * 3 / 256 - 1);
        out += num_bytes;
    }
    return out;
}

void decode(const BlockTQ1_0& block, float* __restrict out) {
    const float d = half_at(block.d);
    out = decode_ternary(block.q, 32, 5, d, out);
    out = decode_ternary(block.q + 32, 16, 5, d, out);
    decode_ternary(block.last, 4, 4, d, out);
}

void decode(const BlockTQ2_0& block, float* __restrict out) {
    const float d = half_at(block.d);
    for (int half = 0; half < 2; ++half)
        for (int shift = 0; shift < 8; shift += 2, out += 32)
            for (int i = 0; i < 32; ++i) out[i] = d * to_float((block.q[32 * half + i] >> shift & 3) - 1);
}

#include "dequantize_iq.inl"
#include "dequantize_k.inl"

template <typename Block>
void dequantize_row(const uint8_t* blocks, float* out, int64_t num_values) {
    for (int64_t i = 0; i < num_values; i += Block::kValues, blocks += sizeof(Block))
        decode(*reinterpret_cast<const Block*>(blocks), out + i);
}

void dequantize_f32(const uint8_t* row, float* out, int64_t num_values) {
    memcpy(out, row, static_cast<size_t>(num_values) * sizeof(float));
}

void dequantize_f16(const uint8_t* row, float* out, int64_t num_values) {
    for (int64_t i = 0; i < num_values; ++i) out[i] = half_at(row + 2 * i);
}

void dequantize_bf16(const uint8_t* row, float* out, int64_t num_values) {
    for (int64_t i = 0; i < num_values; ++i) {
        const uint32_t upper_half = load_as<uint16_t>(row + 2 * i);
        out[i] = float_of_bits(upper_half << 16);
    }
}

// Fills table[WeightType]; null for the numbers between the types.
[[maybe_unused]] void fill_dequantize(DequantizeRow* table) {
    for (int type = 0; type < kNumWeightTypes; ++type) table[type] = nullptr;
    table[F32] = dequantize_f32;
    table[F16] = dequantize_f16;
    table[BF16] = dequantize_bf16;
    table[Q4_0] = dequantize_row<BlockQ4_0>;
    table[Q4_1] = dequantize_row<BlockQ4_1>;
    table[Q5_0] = dequantize_row<BlockQ5_0>;
    table[Q5_1] = dequantize_row<BlockQ5_1>;
    table[Q8_0] = dequantize_row<BlockQ8_0>;
    table[Q2_K] = dequantize_row<BlockQ2_K>;
    table[Q3_K] = dequantize_row<BlockQ3_K>;
    table[Q4_K] = dequantize_row<BlockQ4_K>;
    table[Q5_K] = dequantize_row<BlockQ5_K>;
    table[Q6_K] = dequantize_row<BlockQ6_K>;
    table[IQ4_NL] = dequantize_row<BlockIQ4_NL>;
    table[IQ4_XS] = dequantize_row<BlockIQ4_XS>;
    table[TQ1_0] = dequantize_row<BlockTQ1_0>;
    table[TQ2_0] = dequantize_row<BlockTQ2_0>;
    table[MXFP4] = dequantize_row<BlockMXFP4>;
    fill_dequantize_iq<PlainEntries>(table);
}
