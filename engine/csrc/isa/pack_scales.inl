// The scales of blocks as panels have them (panels.h). The bit fields are those that quants.h names.

// Where the scales of one row of a block go: every list has 16 rows side by side.
struct ScaleRow {
    uint8_t* block;
    int row;

    void half(int list, const uint8_t* bytes) {
        const uint16_t bits = load_as<uint16_t>(bytes);
        memcpy(block + 32 * list + 2 * row, &bits, sizeof(bits));
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
    const unsigned high = load_as<uint16_t>(b.scales_high);
    for (int part = 0; part < 8; ++part) {
        const unsigned low = b.scales[part / 2] >> (part % 2 * 4) & 15;
        to.byte(32, part, static_cast<uint8_t>((low | (high >> (2 * part) & 3) << 4) - 32));
    }
}
