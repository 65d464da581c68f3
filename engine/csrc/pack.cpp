#include "pack.h"

#include <algorithm>
#include <cstring>

namespace ktdesk {

namespace {

// Each type says what one block holds: the codes of a group in the order of values, and its scales as the
// panel has them. The bit fields are those that quants.h names.

uint16_t half_bits(const uint8_t* bytes) {
    uint16_t half;
    std::memcpy(&half, bytes, sizeof(half));
    return half;
}

// codes[i], codes[16 + i] = the nibbles of q[i]
void nibbles_of_16(const uint8_t* q, uint8_t* codes) {
    for (int i = 0; i < 16; ++i) {
        codes[i] = q[i] & 15;
        codes[16 + i] = q[i] >> 4;
    }
}

void field_of_32(const uint8_t* q, int shift, uint8_t mask, uint8_t* codes) {
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(q[i] >> shift) & mask;
}

void add_fifth_bits(const uint8_t* bits, uint8_t* codes) {
    uint32_t fifth;
    std::memcpy(&fifth, bits, sizeof(fifth));
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (fifth >> i & 1) << 4);
}

void codes_of(const BlockQ4_0& b, int, uint8_t* codes) { nibbles_of_16(b.q, codes); }
void codes_of(const BlockQ4_1& b, int, uint8_t* codes) { nibbles_of_16(b.q, codes); }
void codes_of(const BlockIQ4_NL& b, int, uint8_t* codes) { nibbles_of_16(b.q, codes); }
void codes_of(const BlockMXFP4& b, int, uint8_t* codes) { nibbles_of_16(b.q, codes); }
void codes_of(const BlockQ8_0& b, int, uint8_t* codes) { std::memcpy(codes, b.q, 32); }
void codes_of(const BlockIQ4_XS& b, int group, uint8_t* codes) { nibbles_of_16(b.q + 16 * group, codes); }

void codes_of(const BlockQ5_0& b, int, uint8_t* codes) {
    nibbles_of_16(b.q, codes);
    add_fifth_bits(b.fifth, codes);
}

void codes_of(const BlockQ5_1& b, int, uint8_t* codes) {
    nibbles_of_16(b.q, codes);
    add_fifth_bits(b.fifth, codes);
}

void codes_of(const BlockQ2_K& b, int group, uint8_t* codes) {
    field_of_32(b.q + 32 * (group / 4), group % 4 * 2, 3, codes);
}

void codes_of(const BlockQ3_K& b, int group, uint8_t* codes) {
    field_of_32(b.q + 32 * (group / 4), group % 4 * 2, 3, codes);
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (b.third[i] >> group & 1) << 2);
}

void codes_of(const BlockQ4_K& b, int group, uint8_t* codes) {
    field_of_32(b.q + 32 * (group / 2), group % 2 * 4, 15, codes);
}

void codes_of(const BlockQ5_K& b, int group, uint8_t* codes) {
    field_of_32(b.q + 32 * (group / 2), group % 2 * 4, 15, codes);
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (b.fifth[i] >> group & 1) << 4);
}

void codes_of(const BlockQ6_K& b, int group, uint8_t* codes) {
    field_of_32(b.q + 64 * (group / 4) + 32 * (group % 2), group / 2 % 2 * 4, 15, codes);
    const uint8_t* high = b.high + 32 * (group / 4);
    const int shift = group % 4 * 2;
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (high[i] >> shift & 3) << 4);
}

// Where the scales of one row of a block go: every list has 16 rows side by side.
struct ScaleRow {
    uint8_t* block;
    int row;

    void half(int list, const uint8_t* bytes) {
        const uint16_t bits = half_bits(bytes);
        std::memcpy(block + 32 * list + 2 * row, &bits, sizeof(bits));
    }
    void byte(int offset, int list, uint8_t value) { block[offset + 16 * list + row] = value; }
};

template <class Block>
void only_d(const Block& b, ScaleRow to) {
    to.half(0, b.d);
}

template <class Block>
void d_and_m(const Block& b, ScaleRow to) {
    to.half(0, b.d);
    to.half(1, b.m);
}

void scales_of(const BlockQ4_0& b, ScaleRow to) { only_d(b, to); }
void scales_of(const BlockQ5_0& b, ScaleRow to) { only_d(b, to); }
void scales_of(const BlockQ8_0& b, ScaleRow to) { only_d(b, to); }
void scales_of(const BlockIQ4_NL& b, ScaleRow to) { only_d(b, to); }
void scales_of(const BlockQ4_1& b, ScaleRow to) { d_and_m(b, to); }
void scales_of(const BlockQ5_1& b, ScaleRow to) { d_and_m(b, to); }
void scales_of(const BlockMXFP4& b, ScaleRow to) { to.byte(0, 0, b.exponent); }

void scales_of(const BlockQ2_K& b, ScaleRow to) {
    to.half(0, b.d);
    to.half(1, b.dmin);
    for (int part = 0; part < 16; ++part) to.byte(64, part, b.scales[part]);
}

void scales_of(const BlockQ3_K& b, ScaleRow to) {
    to.half(0, b.d);
    for (int part = 0; part < 16; ++part) {
        const int low = b.scales[part % 8] >> (part / 8 * 4) & 15,
                  high = b.scales_high[part % 4] >> (part / 4 * 2) & 3;
        to.byte(32, part, static_cast<uint8_t>((low | high << 4) - 32));
    }
}

// The 6-bit scales and mins of Q4_K and Q5_K: the first four in the low six bits of bytes 0..3 and 4..7, the
// others with their low nibbles in bytes 8..11 and their high bits on top of the first eight.
template <class Block>
void six_bit_scales_and_mins(const Block& b, ScaleRow to) {
    to.half(0, b.d);
    to.half(1, b.dmin);
    for (int part = 0; part < 4; ++part) {
        const uint8_t first = b.scales[part], second = b.scales[4 + part], third = b.scales[8 + part];
        to.byte(64, 2 * part, first & 63);
        to.byte(64, 2 * part + 1, second & 63);
        to.byte(64, 2 * (part + 4), static_cast<uint8_t>((third & 15) | first >> 6 << 4));
        to.byte(64, 2 * (part + 4) + 1, static_cast<uint8_t>(third >> 4 | second >> 6 << 4));
    }
}

void scales_of(const BlockQ4_K& b, ScaleRow to) { six_bit_scales_and_mins(b, to); }
void scales_of(const BlockQ5_K& b, ScaleRow to) { six_bit_scales_and_mins(b, to); }

void scales_of(const BlockQ6_K& b, ScaleRow to) {
    to.half(0, b.d);
    for (int part = 0; part < 16; ++part) to.byte(32, part, static_cast<uint8_t>(b.scales[part]));
}

void scales_of(const BlockIQ4_XS& b, ScaleRow to) {
    to.half(0, b.d);
    const unsigned high = half_bits(b.scales_high);
    for (int part = 0; part < 8; ++part) {
        const unsigned low = b.scales[part / 2] >> (part % 2 * 4) & 15;
        to.byte(32, part, static_cast<uint8_t>((low | (high >> (2 * part) & 3) << 4) - 32));
    }
}

// The codes of a group of 16 rows as bytes: vectors[64 * i + 4 * n + j].
struct Vectors {
    alignas(64) uint8_t bytes[8 * 64];

    void set_row(int row, const uint8_t* codes) {
        for (int i = 0; i < 8; ++i) std::memcpy(bytes + 64 * i + 4 * row, codes + 4 * i, 4);
    }
};

// line = the vectors first, first + stride, ... each in its own field of `bits` bits.
void merge_fields(const uint8_t* vectors, int first, int stride, int count, int from_bit, int bits,
                  uint8_t* line) {
    const int mask = (1 << bits) - 1;
    for (int b = 0; b < 64; ++b) {
        int merged = 0;
        for (int i = 0; i < count; ++i)
            merged |= (vectors[64 * (first + i * stride) + b] >> from_bit & mask) << (i * bits);
        line[b] = static_cast<uint8_t>(merged);
    }
}

uint8_t* write_nibbles(const Vectors& v, uint8_t* to) {
    for (int i = 0; i < 4; ++i, to += 64)
        for (int b = 0; b < 64; ++b)
            to[b] = static_cast<uint8_t>((v.bytes[64 * i + b] & 15) | v.bytes[64 * (i + 4) + b] << 4);
    return to;
}

uint8_t* write_pairs(const Vectors& v, int from_bit, uint8_t* to) {
    merge_fields(v.bytes, 0, 1, 4, from_bit, 2, to);
    merge_fields(v.bytes, 4, 1, 4, from_bit, 2, to + 64);
    return to + 128;
}

uint8_t* write_bits(const Vectors& v, int from_bit, uint8_t* to) {
    merge_fields(v.bytes, 0, 1, 8, from_bit, 1, to);
    return to + 64;
}

template <int kBits>
void write_codes(const Vectors& v, uint8_t* to) {
    if constexpr (kBits == 8) std::memcpy(to, v.bytes, sizeof(v.bytes));
    if constexpr (kBits == 2 || kBits == 3) to = write_pairs(v, 0, to);
    if constexpr (kBits == 3) write_bits(v, 2, to);
    if constexpr (kBits == 4 || kBits == 5 || kBits == 6) to = write_nibbles(v, to);
    if constexpr (kBits == 5) write_bits(v, 4, to);
    if constexpr (kBits == 6) write_pairs(v, 4, to);
}

template <class Block, int kType>
void pack_panel(const Matrix& matrix, int64_t panel, uint8_t* to) {
    constexpr PanelFormat format = panel_format(kType);
    constexpr int kGroups = Block::kValues / static_cast<int>(kGroupValues);
    const int64_t first = panel * kPanelRows;
    const int rows = static_cast<int>(std::min(kPanelRows, matrix.num_rows - first));
    uint8_t* scales = to;
    uint8_t* codes = to + panel_scales_bytes(kType, matrix.length);
    std::memset(to, 0, static_cast<size_t>(panel_scales_bytes(kType, matrix.length)));
    Vectors vectors = {};
    for (int64_t block = 0; block < matrix.length / Block::kValues; ++block, scales += format.scale_bytes) {
        const uint8_t* column =
            matrix.rows + first * matrix.row_bytes + block * static_cast<int64_t>(sizeof(Block));
        for (int n = 0; n < rows; ++n)
            scales_of(*reinterpret_cast<const Block*>(column + n * matrix.row_bytes), ScaleRow{scales, n});
        for (int group = 0; group < kGroups; ++group, codes += group_bytes(kType)) {
            for (int n = 0; n < rows; ++n) {
                uint8_t row_codes[kGroupValues];
                codes_of(*reinterpret_cast<const Block*>(column + n * matrix.row_bytes), group, row_codes);
                vectors.set_row(n, row_codes);
            }
            write_codes<format.code_bits>(vectors, codes);
        }
    }
}

// Panels of 16-bit floats: value k of 16 rows side by side.
void pack_halves(const Matrix& matrix, int64_t panel, uint8_t* to) {
    const int64_t first = panel * kPanelRows, rows = std::min(kPanelRows, matrix.num_rows - first);
    const uint8_t* from = matrix.rows + first * matrix.row_bytes;
    for (int64_t k = 0; k < matrix.length; ++k, to += 2 * kPanelRows) {
        std::memset(to, 0, 2 * kPanelRows);
        for (int64_t n = 0; n < rows; ++n) std::memcpy(to + 2 * n, from + n * matrix.row_bytes + 2 * k, 2);
    }
}

using PackPanel = void (*)(const Matrix& matrix, int64_t panel, uint8_t* to);

PackPanel pack_panel_of(int type) {
    switch (type) {
        case Q4_0:
            return pack_panel<BlockQ4_0, Q4_0>;
        case Q4_1:
            return pack_panel<BlockQ4_1, Q4_1>;
        case Q5_0:
            return pack_panel<BlockQ5_0, Q5_0>;
        case Q5_1:
            return pack_panel<BlockQ5_1, Q5_1>;
        case Q8_0:
            return pack_panel<BlockQ8_0, Q8_0>;
        case Q2_K:
            return pack_panel<BlockQ2_K, Q2_K>;
        case Q3_K:
            return pack_panel<BlockQ3_K, Q3_K>;
        case Q4_K:
            return pack_panel<BlockQ4_K, Q4_K>;
        case Q5_K:
            return pack_panel<BlockQ5_K, Q5_K>;
        case Q6_K:
            return pack_panel<BlockQ6_K, Q6_K>;
        case IQ4_NL:
            return pack_panel<BlockIQ4_NL, IQ4_NL>;
        case IQ4_XS:
            return pack_panel<BlockIQ4_XS, IQ4_XS>;
        case MXFP4:
            return pack_panel<BlockMXFP4, MXFP4>;
        case F16:
        case BF16:
            return pack_halves;
        default:
            return nullptr;
    }
}

}  // namespace

void pack(WorkerPool& pool, const Matrix& matrix, uint8_t* panels) {
    const PackPanel pack_panel = pack_panel_of(matrix.type);
    const int64_t bytes = panel_bytes(matrix.type, matrix.length);
    // The threads that will multiply a panel touch it first.
    pool.run_at_home(num_panels(matrix.num_rows),
                     [&](int64_t panel, int) { pack_panel(matrix, panel, panels + panel * bytes); });
}

}  // namespace ktdesk
