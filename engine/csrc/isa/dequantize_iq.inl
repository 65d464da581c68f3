// Part of dequantize.inl: the formats whose codes point into a codebook. decode_iq<Entries>(block, out) is
// overloaded on the block's type; Entries turns codebook entries into floats.

#include "../codebooks.h"

// The sign byte of a 7-bit code: the eighth bit makes the number of minus signs even.
int even_signs(int code) {
    int parity = code ^ code >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return code | (parity & 1) << 7;
}

// The 4-bit field number `index` of a list of bytes, low halves first.
int nibble_at(const uint8_t* bytes, int index) { return bytes[index / 2] >> (4 * (index % 2)) & 15; }

// Eight values of codebook entries, in plain C++. The levels are computed rather than looked up, so that a
// compiler can do them side by side. IQ3 entries stand for four values: the second one is in the upper half.
struct PlainEntries {
    // scale * (level + shift), levels -1, 0, 1
    static void iq1(uint32_t entry, float scale, float shift, float* __restrict out) {
        for (int i = 0; i < 8; ++i) {
            const int number = entry >> (2 * i) & 3;
            out[i] = scale * (to_float(number - 1) + shift);
        }
    }

    // scale * +-level, levels 8, 25, 43
    static void iq2(uint32_t entry, int signs, float scale, float* __restrict out) {
        for (int i = 0; i < 8; ++i) {
            const int number = entry >> (2 * i) & 3;
            out[i] = scale * to_float(with_sign(8 + 17 * number + (number >> 1), signs >> i & 1));
        }
    }

    // scale * +-level, levels 4, 12, ... 52, 62
    static void iq3_xxs(uint32_t entries, int signs, float scale, float* __restrict out) {
        for (int i = 0; i < 8; ++i) {
            const int number = entries >> (16 * (i / 4) + 3 * (i % 4)) & 7;
            out[i] = scale * to_float(with_sign(4 + 8 * number + 2 * ((number + 1) >> 3), signs >> i & 1));
        }
    }

    // scale * +-level, levels 1, 3, ... 15
    static void iq3_s(uint32_t entries, int signs, float scale, float* __restrict out) {
        for (int i = 0; i < 8; ++i) {
            const int number = entries >> (16 * (i / 4) + 3 * (i % 4)) & 7;
            out[i] = scale * to_float(with_sign(1 + 2 * number, signs >> i & 1));
        }
    }

    static int with_sign(int level, int sign_bit) { return (level ^ -sign_bit) + sign_bit; }
};

template <typename Entries>
void decode_iq(const BlockIQ1_S& block, float* out) {
    const float d = half_at(block.d);
    for (int group = 0; group < 32; ++group, out += 8) {
        const int word = load_as<uint16_t>(block.high + 2 * (group / 4));
        const int index = block.index[group] | (word >> (3 * (group % 4)) & 7) << 8;
        const float scale = d * to_float(2 * (word >> 12 & 7) + 1);
        Entries::iq1(kIQ1Book[index], scale, word & 0x8000 ? -0.125f : 0.125f, out);
    }
}

template <typename Entries>
void decode_iq(const BlockIQ1_M& block, float* out) {
    int words[4], d_bits = 0;
    for (int i = 0; i < 4; ++i) {
        words[i] = load_as<uint16_t>(block.scales + 2 * i);
        d_bits |= words[i] >> 12 << (4 * i);
    }
    const float d = half_to_float(static_cast<uint16_t>(d_bits));
    for (int group = 0; group < 32; ++group, out += 8) {
        const int high = nibble_at(block.high, group);
        const int scale = words[group / 8] >> (3 * (group / 2 % 4)) & 7;
        Entries::iq1(kIQ1Book[block.index[group] | (high & 7) << 8], d * to_float(2 * scale + 1),
                     high & 8 ? -0.125f : 0.125f, out);
    }
}

template <typename Entries>
void decode_iq(const BlockIQ2_XXS& block, float* out) {
    const float d = half_at(block.d);
    for (int group = 0; group < 32; ++group, out += 8) {
        const uint8_t* codes = block.groups[group / 4];
        const uint32_t word = load_as<uint32_t>(codes + 4);
        const float scale = d * (to_float(static_cast<int>(word >> 28)) + 0.5f) * 0.25f;
        const int signs = even_signs(word >> (7 * (group % 4)) & 127);
        Entries::iq2(kIQ2XXSBook[codes[group % 4]], signs, scale, out);
    }
}

template <typename Entries>
void decode_iq(const BlockIQ2_XS& block, float* out) {
    const float d = half_at(block.d);
    for (int group = 0; group < 32; ++group, out += 8) {
        const int code = load_as<uint16_t>(block.codes + 2 * group);
        const float scale = d * (to_float(nibble_at(block.scales, group / 2)) + 0.5f) * 0.25f;
        Entries::iq2(kIQ2XSBook[code & 511], even_signs(code >> 9), scale, out);
    }
}

template <typename Entries>
void decode_iq(const BlockIQ2_S& block, float* out) {
    const float d = half_at(block.d);
    for (int group = 0; group < 32; ++group, out += 8) {
        const int index = block.index[group] | (block.high[group / 4] >> (2 * (group % 4)) & 3) << 8;
        const float scale = d * (to_float(nibble_at(block.scales, group / 2)) + 0.5f) * 0.25f;
        Entries::iq2(kIQ2SBook[index], block.signs[group], scale, out);
    }
}

template <typename Entries>
void decode_iq(const BlockIQ3_XXS& block, float* out) {
    const float d = half_at(block.d);
    for (int group = 0; group < 32; ++group, out += 8) {
        const uint32_t word = load_as<uint32_t>(block.codes + 4 * (group / 4));
        const float scale = d * (to_float(static_cast<int>(word >> 28)) + 0.5f) * 0.5f;
        const int signs = even_signs(word >> (7 * (group % 4)) & 127);
        const uint8_t* index = block.index + 2 * group;
        const uint32_t second = kIQ3XXSBook[index[1]];
        Entries::iq3_xxs(kIQ3XXSBook[index[0]] | second << 16, signs, scale, out);
    }
}

template <typename Entries>
void decode_iq(const BlockIQ3_S& block, float* out) {
    const float d = half_at(block.d);
    for (int group = 0; group < 32; ++group, out += 8) {
        const float scale = d * to_float(2 * nibble_at(block.scales, group / 4) + 1);
        const uint8_t* index = block.index + 2 * group;
        const int high = block.high[group / 4] >> (2 * (group % 4));
        const uint32_t second = kIQ3SBook[index[1] | (high >> 1 & 1) << 8];
        Entries::iq3_s(kIQ3SBook[index[0] | (high & 1) << 8] | second << 16, block.signs[group], scale, out);
    }
}

template <typename Entries, typename Block>
void dequantize_iq_row(const uint8_t* blocks, float* out, int64_t num_values) {
    for (int64_t i = 0; i < num_values; i += Block::kValues, blocks += sizeof(Block))
        decode_iq<Entries>(*reinterpret_cast<const Block*>(blocks), out + i);
}

template <typename Entries>
void fill_dequantize_iq(DequantizeRow* table) {
    table[IQ1_S] = dequantize_iq_row<Entries, BlockIQ1_S>;
    table[IQ1_M] = dequantize_iq_row<Entries, BlockIQ1_M>;
    table[IQ2_XXS] = dequantize_iq_row<Entries, BlockIQ2_XXS>;
    table[IQ2_XS] = dequantize_iq_row<Entries, BlockIQ2_XS>;
    table[IQ2_S] = dequantize_iq_row<Entries, BlockIQ2_S>;
    table[IQ3_XXS] = dequantize_iq_row<Entries, BlockIQ3_XXS>;
    table[IQ3_S] = dequantize_iq_row<Entries, BlockIQ3_S>;
}
