// Weights laid out for vectors and tiles: 16 output rows side by side.
//
// A panel is 16 rows of a matrix, its values exactly the file's. It starts at a cache line and holds two
// regions, each read once from front to back:
//
//   scales  for each block of the type (32 or 256 values of a row), 16 rows side by side:
//             d     16 float16 (MXFP4: 16 exponent bytes)
//             m     16 float16, where the type has a min
//             and for blocks of 256, for each part (16 or 32 values) of the block in turn:
//             16 scale bytes, then 16 min bytes where the type has mins (Q2_K: one byte for both, as in the
//             file)
//           padded to a cache line
//   codes   for each group of 32 values, in cache lines. Vector i of a group, i = 0..7, is 64 bytes: byte 4n
//   + j
//           is the code of value 4i + j of row n, which is what a four-byte dot product wants. Lines hold
//           vectors by bit fields:
//             4 bits    line i = 0..3: vector i in the low nibble, vector i + 4 in the high one
//             2 bits    line i = 0, 1: vectors 4i..4i + 3, from the low bits up
//             1 bit     one line: bit i belongs to vector i
//             8 bits    line i = vector i
//           5-bit codes are 4 bits then 1 bit on top, 6-bit codes 4 then 2, 3-bit codes 2 then 1.
//
// Rows of 16-bit floats have no scales, and their codes are the numbers themselves: for each value of a row
// in turn, those of 16 rows side by side (32 bytes). They are multiplied with floats.
//
// Rows that fill up the last panel have scales and codes of zero.
#pragma once

#include <cstdint>

#include "quants.h"

namespace ktdesk {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kGroupValues = 32;
constexpr int64_t kCacheLine = 64;

// How a type is laid out in panels.
struct PanelFormat {
    int code_bits;    // 0: the type has no panels; 16: codes are floats
    int part_values;  // values with one scale: 16 or 32
    int scale_bytes;  // of a block
    bool has_mins;
    int offset;  // what is subtracted from a code; for codes that are signed or numbers of levels, 0
};

static constexpr PanelFormat panel_format(int type) {
    switch (type) {
        case Q4_0:
            return {4, 32, 32, false, 8};
        case Q4_1:
            return {4, 32, 64, true, 0};
        case Q5_0:
            return {5, 32, 32, false, 16};
        case Q5_1:
            return {5, 32, 64, true, 0};
        case Q8_0:
            return {8, 32, 32, false, 0};
        case Q2_K:
            return {2, 16, 64 + 16 * 16, true, 0};
        case Q3_K:
            return {3, 16, 32 + 16 * 16, false, 4};
        case Q4_K:
            return {4, 32, 64 + 8 * 32, true, 0};
        case Q5_K:
            return {5, 32, 64 + 8 * 32, true, 0};
        case Q6_K:
            return {6, 16, 32 + 16 * 16, false, 32};
        case IQ4_NL:
            return {4, 32, 32, false, 0};
        case IQ4_XS:
            return {4, 32, 32 + 8 * 16, false, 0};
        case MXFP4:
            return {4, 32, 16, false, 0};
        case F16:
        case BF16:
            return {16, 32, 0, false, 0};
        default:
            return {0, 0, 0, false, 0};
    }
}

static constexpr bool has_panels(int type, int64_t length) {
    return panel_format(type).code_bits > 0 && length % kGroupValues == 0 && length % block_values(type) == 0;
}

// Whether panels of the type are multiplied with floats, the others being multiplied with bytes.
static constexpr bool has_float_panels(int type) { return panel_format(type).code_bits == 16; }

// Bytes of the codes of a group of 32 values of 16 rows.
static constexpr int64_t group_bytes(int type) {
    return panel_format(type).code_bits * kGroupValues * kPanelRows / 8;
}

// Bytes of the scales of a panel whose rows have `length` values, with the padding.
static constexpr int64_t panel_scales_bytes(int type, int64_t length) {
    const int64_t bytes = length / block_values(type) * panel_format(type).scale_bytes;
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

static constexpr int64_t panel_bytes(int type, int64_t length) {
    return panel_scales_bytes(type, length) + length / kGroupValues * group_bytes(type);
}

static constexpr int64_t num_panels(int64_t num_rows) { return (num_rows + kPanelRows - 1) / kPanelRows; }

}  // namespace ktdesk
