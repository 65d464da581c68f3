// Part of dequantize_avx2.inl: 256 values with a scale for each 16 or 32 of them.

// scaled[0..7] = d * scales, from 8 signed bytes.
void scale_8(const uint8_t* scales, float d, float* scaled) {
    const __m128i bytes = _mm_cvtsi64_si128(load_as<int64_t>(scales));
    _mm256_storeu_ps(scaled, _mm256_mul_ps(_mm256_set1_ps(d), to_floats(bytes)));
}

void decode_avx2(const BlockQ2_K& block, float* out) {
    float scales[16], offsets[16];
    const __m128i packed = load16(block.scales);
    store_scaled(low_nibbles(packed), _mm256_set1_ps(fast_half_at(block.d)), scales);
    store_scaled(high_nibbles(packed), _mm256_set1_ps(-fast_half_at(block.dmin)), offsets);
    for (int half = 0; half < 2; ++half) {
        __m256i q = load32(block.q + 32 * half);
        for (int group = 8 * half; group < 8 * half + 8; group += 2, out += 32) {
            const __m256i fields = _mm256_and_si256(q, _mm256_set1_epi8(3));
            store_scaled(low_half(fields), _mm256_set1_ps(scales[group]), _mm256_set1_ps(offsets[group]),
                         out);
            store_scaled(high_half(fields), _mm256_set1_ps(scales[group + 1]),
                         _mm256_set1_ps(offsets[group + 1]), out + 16);
            q = _mm256_srli_epi16(q, 2);
        }
    }
}

void decode_avx2(const BlockQ3_K& block, float* out) {
    uint8_t packed_scales[16];
    unpack_scales(block, packed_scales);
    float scales[16];
    store_scaled(_mm_sub_epi8(load16(packed_scales), _mm_set1_epi8(32)),
                 _mm256_set1_ps(fast_half_at(block.d)), scales);
    const __m256i third = load32(block.third);
    __m256i third_bit = _mm256_set1_epi8(1);
    for (int half = 0; half < 2; ++half) {
        __m256i q = load32(block.q + 32 * half);
        for (int group = 8 * half; group < 8 * half + 8; group += 2, out += 32) {
            const __m256i fields = _mm256_and_si256(q, _mm256_set1_epi8(3));
            const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(third, third_bit), third_bit);
            const __m256i lowered = _mm256_sub_epi8(fields, _mm256_andnot_si256(is_set, _mm256_set1_epi8(4)));
            store_scaled(low_half(lowered), _mm256_set1_ps(scales[group]), out);
            store_scaled(high_half(lowered), _mm256_set1_ps(scales[group + 1]), out + 16);
            q = _mm256_srli_epi16(q, 2);
            third_bit = _mm256_add_epi8(third_bit, third_bit);
        }
    }
}

void decode_avx2(const BlockQ4_K& block, float* out) {
    uint8_t packed_scales[8], packed_mins[8];
    unpack_scales_and_mins(block.scales, packed_scales, packed_mins);
    float scales[8], offsets[8];
    scale_8(packed_scales, fast_half_at(block.d), scales);
    scale_8(packed_mins, -fast_half_at(block.dmin), offsets);
    for (int group = 0; group < 8; group += 2, out += 64) {
        const __m256i q = load32(block.q + 16 * group);
        store_scaled(low_nibbles(q), scales[group], offsets[group], out);
        store_scaled(high_nibbles(q), scales[group + 1], offsets[group + 1], out + 32);
    }
}

void decode_avx2(const BlockQ5_K& block, float* out) {
    uint8_t packed_scales[8], packed_mins[8];
    unpack_scales_and_mins(block.scales, packed_scales, packed_mins);
    float scales[8], offsets[8];
    scale_8(packed_scales, fast_half_at(block.d), scales);
    scale_8(packed_mins, -fast_half_at(block.dmin), offsets);
    const __m256i sixteen = _mm256_set1_epi8(16);
    __m256i fifth = load32(block.fifth);
    for (int group = 0; group < 8; group += 2, out += 64) {
        const __m256i q = load32(block.q + 16 * group);
        const __m256i low = _mm256_and_si256(_mm256_slli_epi16(fifth, 4), sixteen);
        const __m256i high = _mm256_and_si256(_mm256_slli_epi16(fifth, 3), sixteen);
        store_scaled(_mm256_or_si256(low_nibbles(q), low), scales[group], offsets[group], out);
        store_scaled(_mm256_or_si256(high_nibbles(q), high), scales[group + 1], offsets[group + 1], out + 32);
        fifth = _mm256_srli_epi16(fifth, 2);
    }
}

void decode_avx2(const BlockQ6_K& block, float* out) {
    float scales[16];
    store_scaled(load16(block.scales), _mm256_set1_ps(fast_half_at(block.d)), scales);
    const __m256i two_bits = _mm256_set1_epi8(0x30);
    for (int half = 0; half < 2; ++half) {
        const __m256i first = load32(block.q + 64 * half), second = load32(block.q + 64 * half + 32);
        const __m256i high = load32(block.high + 32 * half);
        const __m256i q[4] = {
            _mm256_or_si256(low_nibbles(first), _mm256_and_si256(_mm256_slli_epi16(high, 4), two_bits)),
            _mm256_or_si256(low_nibbles(second), _mm256_and_si256(_mm256_slli_epi16(high, 2), two_bits)),
            _mm256_or_si256(high_nibbles(first), _mm256_and_si256(high, two_bits)),
            _mm256_or_si256(high_nibbles(second), _mm256_and_si256(_mm256_srli_epi16(high, 2), two_bits)),
        };
        for (int i = 0; i < 4; ++i, out += 32) {
            const __m256i lowered = _mm256_sub_epi8(q[i], _mm256_set1_epi8(32));
            store_scaled(low_half(lowered), _mm256_set1_ps(scales[8 * half + 2 * i]), out);
            store_scaled(high_half(lowered), _mm256_set1_ps(scales[8 * half + 2 * i + 1]), out + 16);
        }
    }
}

// scaled[0..7] = d * (scale - 32), from 6-bit scales of which the low nibbles and the high bits lie in order.
void unpack_scales_avx2(const BlockIQ4_XS& block, float* scaled) {
    const __m128i packed = _mm_cvtsi32_si128(load_as<int>(block.scales));
    const __m128i low = _mm_unpacklo_epi8(low_nibbles(packed), high_nibbles(packed));
    const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<uint16_t>(block.scales_high)),
                                           _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i high_bits = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    const __m256i scales = _mm256_or_si256(_mm256_cvtepu8_epi32(low), high_bits);
    const __m256 lowered = _mm256_cvtepi32_ps(_mm256_sub_epi32(scales, _mm256_set1_epi32(32)));
    _mm256_storeu_ps(scaled, _mm256_mul_ps(_mm256_set1_ps(fast_half_at(block.d)), lowered));
}

void decode_avx2(const BlockIQ4_XS& block, float* out) {
    float scales[8];
    unpack_scales_avx2(block, scales);
    for (int group = 0; group < 8; ++group, out += 32)
        store_scaled(levels_of(nibbles_of_16(block.q + 16 * group), kIQ4Levels), scales[group], out);
}
