// Part of dequantize.inl: 256 values with a scale for each 16 or 32 of them.

// The eight 6-bit scales and mins of Q4_K and Q5_K. Of the twelve bytes the first four hold scales 0..3, the
// next four mins 0..3, the last four the low halves of scales and mins 4..7; their upper two bits are the top
// bits of the first eight bytes.
void unpack_scales_and_mins(const uint8_t* packed, uint8_t* scales, uint8_t* mins) {
    const uint32_t first = load_as<uint32_t>(packed), second = load_as<uint32_t>(packed + 4);
    const uint32_t third = load_as<uint32_t>(packed + 8);
    const uint32_t words[4] = {
        first & 0x3f3f3f3f,
        (third & 0x0f0f0f0f) | (first >> 2 & 0x30303030),
        second & 0x3f3f3f3f,
        (third >> 4 & 0x0f0f0f0f) | (second >> 2 & 0x30303030),
    };
    memcpy(scales, words, 8);
    memcpy(mins, words + 2, 8);
}

// The sixteen 6-bit scales of Q3_K, not yet lowered by 32.
void unpack_scales(const BlockQ3_K& block, uint8_t* scales) {
    const uint32_t high = load_as<uint32_t>(block.scales_high);
    for (int i = 0; i < 4; ++i) {
        const uint32_t low = load_as<uint32_t>(block.scales + 4 * (i % 2)) >> (i < 2 ? 0 : 4);
        const uint32_t four = (low & 0x0f0f0f0f) | (high >> (2 * i) & 0x03030303) << 4;
        memcpy(scales + 4 * i, &four, 4);
    }
}

// The eight 6-bit scales of IQ4_XS, not yet lowered by 32.
void unpack_scales(const BlockIQ4_XS& block, uint8_t* scales) {
    const uint32_t high = load_as<uint16_t>(block.scales_high);
    for (int i = 0; i < 8; ++i) {
        const int low = block.scales[i / 2] >> (4 * (i % 2)) & 15;
        scales[i] = static_cast<uint8_t>(low | (high >> (2 * i) & 3) << 4);
    }
}

void decode(const BlockQ2_K& block, float* __restrict out) {
    const float d = half_at(block.d), dmin = half_at(block.dmin);
    for (int group = 0; group < 16; ++group, out += 16) {
        const uint8_t* q = block.q + 32 * (group / 8) + 16 * (group % 2);
        const int shift = group / 2 % 4 * 2;
        const float scale = d * to_float(block.scales[group] & 15),
                    min = dmin * to_float(block.scales[group] >> 4);
        for (int i = 0; i < 16; ++i) out[i] = scale * to_float(q[i] >> shift & 3) - min;
    }
}

void decode(const BlockQ3_K& block, float* __restrict out) {
    const float d = half_at(block.d);
    uint8_t scales[16];
    unpack_scales(block, scales);
    for (int group = 0; group < 16; ++group, out += 16) {
        const uint8_t* q = block.q + 32 * (group / 8) + 16 * (group % 2);
        const uint8_t* third = block.third + 16 * (group % 2);
        const int shift = group / 2 % 4 * 2;
        const float scale = d * to_float(scales[group] - 32);
        for (int i = 0; i < 16; ++i)
            out[i] = scale * to_float((q[i] >> shift & 3) + (third[i] >> (group / 2) & 1) * 4 - 4);
    }
}

void decode(const BlockQ4_K& block, float* __restrict out) {
    const float d = half_at(block.d), dmin = half_at(block.dmin);
    uint8_t scales[8], mins[8];
    unpack_scales_and_mins(block.scales, scales, mins);
    for (int group = 0; group < 8; ++group, out += 32) {
        const uint8_t* q = block.q + 32 * (group / 2);
        const int shift = group % 2 * 4;
        const float scale = d * to_float(scales[group]), min = dmin * to_float(mins[group]);
        for (int i = 0; i < 32; ++i) out[i] = scale * to_float(q[i] >> shift & 15) - min;
    }
}

void decode(const BlockQ5_K& block, float* __restrict out) {
    const float d = half_at(block.d), dmin = half_at(block.dmin);
    uint8_t scales[8], mins[8];
    unpack_scales_and_mins(block.scales, scales, mins);
    for (int group = 0; group < 8; ++group, out += 32) {
        const uint8_t* q = block.q + 32 * (group / 2);
        const int shift = group % 2 * 4;
        const float scale = d * to_float(scales[group]), min = dmin * to_float(mins[group]);
        for (int i = 0; i < 32; ++i)
            out[i] = scale * to_float((q[i] >> shift & 15) | (block.fifth[i] >> group & 1) << 4) - min;
    }
}

void decode(const BlockQ6_K& block, float* __restrict out) {
    const float d = half_at(block.d);
    for (int group = 0; group < 16; ++group, out += 16) {
        const uint8_t* q = block.q + 64 * (group / 8) + 16 * (group % 4);
        const uint8_t* high = block.high + 32 * (group / 8) + 16 * (group % 2);
        const int shift = group / 4 % 2 * 4, high_shift = group / 2 % 4 * 2;
        const float scale = d * to_float(block.scales[group]);
        for (int i = 0; i < 16; ++i)
            out[i] = scale * to_float(((q[i] >> shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
    }
}

void decode(const BlockIQ4_XS& block, float* __restrict out) {
    const float d = half_at(block.d);
    uint8_t scales[8];
    unpack_scales(block, scales);
    for (int group = 0; group < 8; ++group, out += 32) {
        const uint8_t* q = block.q + 16 * group;
        const float scale = d * to_float(scales[group] - 32);
        for (int i = 0; i < 16; ++i) {
            out[i] = scale * to_float(kIQ4Levels[q[i] & 15]);
            out[16 + i] = scale * to_float(kIQ4Levels[q[i] >> 4]);
        }
    }
}
