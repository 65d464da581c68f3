// The block formats of GGUF weights: their numbers, sizes and byte layouts.
//
// A row is a whole number of blocks. Blocks hold bytes only, so a block may start at any address; numbers of
// several bytes are little endian. What the bytes mean is defined by ktdesk_engine/quants/formats.py, and in
// words beside each struct: "nibbles of 16" means that of every 16 bytes first come all low halves, then all
// high halves; "2-bit of 32" the same with four fields a byte.
//
// Functions here are static, so that each instruction set's file has its own copy.
#pragma once

#include <cstdint>

namespace ktdesk {

enum WeightType : int {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
};

constexpr int kNumWeightTypes = 40;  // table size: every WeightType is below

// Turns num_values weights (a whole number of blocks), starting at any address, into floats.
using DequantizeRow = void (*)(const uint8_t* blocks, float* out, int64_t num_values);

struct BlockQ4_0 {
    static constexpr int kValues = 32;
    uint8_t d[2];   // float16
    uint8_t q[16];  // nibbles of 16
};

struct BlockQ4_1 {
    static constexpr int kValues = 32;
    uint8_t d[2];
    uint8_t m[2];
    uint8_t q[16];
};

struct BlockQ5_0 {
    static constexpr int kValues = 32;
    uint8_t d[2];
    uint8_t fifth[4];  // bit i belongs to value i
    uint8_t q[16];
};

struct BlockQ5_1 {
    static constexpr int kValues = 32;
    uint8_t d[2];
    uint8_t m[2];
    uint8_t fifth[4];
    uint8_t q[16];
};

struct BlockQ8_0 {
    static constexpr int kValues = 32;
    uint8_t d[2];
    int8_t q[32];
};

struct BlockQ2_K {
    static constexpr int kValues = 256;
    uint8_t scales[16];  // low nibble the scale, high nibble the min of 16 values
    uint8_t q[64];       // 2-bit of 32
    uint8_t d[2];
    uint8_t dmin[2];
};

struct BlockQ3_K {
    static constexpr int kValues = 256;
    uint8_t third[32];       // 1-bit of 32
    uint8_t q[64];           // 2-bit of 32
    uint8_t scales[8];       // nibbles of 8: low bits of sixteen 6-bit scales
    uint8_t scales_high[4];  // 2-bit of 4: their high bits
    uint8_t d[2];
};

struct BlockQ4_K {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t dmin[2];
    uint8_t scales[12];  // see unpack_scales_and_mins
    uint8_t q[128];      // nibbles of 32
};

struct BlockQ5_K {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t dmin[2];
    uint8_t scales[12];
    uint8_t fifth[32];  // 1-bit of 32
    uint8_t q[128];     // nibbles of 32
};

struct BlockQ6_K {
    static constexpr int kValues = 256;
    uint8_t q[128];    // nibbles of 64
    uint8_t high[64];  // 2-bit of 32
    int8_t scales[16];
    uint8_t d[2];
};

struct BlockIQ1_S {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t index[32];
    uint8_t high[16];  // 8 words: four times 3 index bits, 3-bit scale, sign of the shift
};

struct BlockIQ1_M {
    static constexpr int kValues = 256;
    uint8_t index[32];
    uint8_t high[16];   // nibbles in order: 3 index bits, sign of the shift
    uint8_t scales[8];  // 4 words: four 3-bit scales, 4 bits of d
};

struct BlockIQ2_XXS {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t groups[8][8];  // four index bytes, then a word of four 7-bit sign codes and a 4-bit scale
};

struct BlockIQ2_XS {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t codes[64];  // 32 words: 9-bit index, 7-bit sign code
    uint8_t scales[8];  // nibbles in order
};

struct BlockIQ2_S {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t index[32];
    uint8_t signs[32];
    uint8_t high[8];  // 2-bit in order: high index bits
    uint8_t scales[8];
};

struct BlockIQ3_XXS {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t index[64];
    uint8_t codes[32];  // 8 words: four 7-bit sign codes, 4-bit scale
};

struct BlockIQ3_S {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t index[64];
    uint8_t high[8];  // bits in order: ninth index bits
    uint8_t signs[32];
    uint8_t scales[4];  // nibbles in order
};

struct BlockIQ4_NL {
    static constexpr int kValues = 32;
    uint8_t d[2];
    uint8_t q[16];  // nibbles of 16: numbers of levels
};

struct BlockIQ4_XS {
    static constexpr int kValues = 256;
    uint8_t d[2];
    uint8_t scales_high[2];  // 2-bit in order
    uint8_t scales[4];       // nibbles in order
    uint8_t q[128];          // nibbles of 16: numbers of levels
};

struct BlockTQ1_0 {
    static constexpr int kValues = 256;
    uint8_t q[48];    // 32, then 16 bytes of five ternary digits
    uint8_t last[4];  // four digits a byte
    uint8_t d[2];
};

struct BlockTQ2_0 {
    static constexpr int kValues = 256;
    uint8_t q[64];  // 2-bit of 32
    uint8_t d[2];
};

struct BlockMXFP4 {
    static constexpr int kValues = 32;
    uint8_t exponent;
    uint8_t q[16];  // nibbles of 16: numbers of levels
};

struct BlockFormat {
    int values;
    int bytes;
};

template <typename Block>
static constexpr BlockFormat format_of() {
    return {Block::kValues, sizeof(Block)};
}

// {0, 0} for a number that is no WeightType.
static constexpr BlockFormat block_format(int type) {
    switch (type) {
        case F32:
            return {1, 4};
        case F16:
            return {1, 2};
        case BF16:
            return {1, 2};
        case Q4_0:
            return format_of<BlockQ4_0>();
        case Q4_1:
            return format_of<BlockQ4_1>();
        case Q5_0:
            return format_of<BlockQ5_0>();
        case Q5_1:
            return format_of<BlockQ5_1>();
        case Q8_0:
            return format_of<BlockQ8_0>();
        case Q2_K:
            return format_of<BlockQ2_K>();
        case Q3_K:
            return format_of<BlockQ3_K>();
        case Q4_K:
            return format_of<BlockQ4_K>();
        case Q5_K:
            return format_of<BlockQ5_K>();
        case Q6_K:
            return format_of<BlockQ6_K>();
        case IQ1_S:
            return format_of<BlockIQ1_S>();
        case IQ1_M:
            return format_of<BlockIQ1_M>();
        case IQ2_XXS:
            return format_of<BlockIQ2_XXS>();
        case IQ2_XS:
            return format_of<BlockIQ2_XS>();
        case IQ2_S:
            return format_of<BlockIQ2_S>();
        case IQ3_XXS:
            return format_of<BlockIQ3_XXS>();
        case IQ3_S:
            return format_of<BlockIQ3_S>();
        case IQ4_NL:
            return format_of<BlockIQ4_NL>();
        case IQ4_XS:
            return format_of<BlockIQ4_XS>();
        case TQ1_0:
            return format_of<BlockTQ1_0>();
        case TQ2_0:
            return format_of<BlockTQ2_0>();
        case MXFP4:
            return format_of<BlockMXFP4>();
        default:
            return {0, 0};
    }
}

static constexpr int block_values(int type) { return block_format(type).values; }

static constexpr int block_bytes(int type) { return block_format(type).bytes; }

}  // namespace ktdesk
