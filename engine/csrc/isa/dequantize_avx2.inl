// Blocks of weights to floats with AVX2 and F16C, for the types that most files use; dequantize.inl, included
// before, has the others and the words. Same results bit for bit. Reads and writes stay inside the row.

__m128i load16(const void* bytes) { return _mm_loadu_si128(static_cast<const __m128i*>(bytes)); }

__m256i load32(const void* bytes) { return _mm256_loadu_si256(static_cast<const __m256i*>(bytes)); }

float fast_half_at(const uint8_t* bytes) { return _cvtsh_ss(load_as<uint16_t>(bytes)); }

// The first 8 signed bytes as floats.
__m256 to_floats(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

// out[0..15] = scale * q
void store_scaled(__m128i q, __m256 scale, float* out) {
    _mm256_storeu_ps(out, _mm256_mul_ps(scale, to_floats(q)));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(scale, to_floats(_mm_unpackhi_epi64(q, q))));
}

// out[0..15] = scale * q + offset
void store_scaled(__m128i q, __m256 scale, __m256 offset, float* out) {
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(scale, to_floats(q)), offset));
    const __m256 upper = to_floats(_mm_unpackhi_epi64(q, q));
    _mm256_storeu_ps(out + 8, _mm256_add_ps(_mm256_mul_ps(scale, upper), offset));
}

__m128i low_half(__m256i v) { return _mm256_castsi256_si128(v); }

__m128i high_half(__m256i v) { return _mm256_extracti128_si256(v, 1); }

// Fields of the bytes, moved to the byte's bottom. A shift carries bits over from the next byte; the mask
// drops them.
__m128i low_nibbles(__m128i v) { return _mm_and_si128(v, _mm_set1_epi8(15)); }

__m128i high_nibbles(__m128i v) { return low_nibbles(_mm_srli_epi16(v, 4)); }

__m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

__m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }

// 32 values from 16 bytes of nibbles: first the low ones.
__m256i nibbles_of_16(const uint8_t* q) {
    const __m128i packed = load16(q);
    return low_nibbles(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed));
}

// Byte i is 16 where bit i of `bits` is set, else 0.
__m256i sixteens(uint32_t bits) {
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i own_bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), spread);
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, own_bit), own_bit);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}

// out[0..31] = scale * q
void store_scaled(__m256i q, float scale, float* out) {
    store_scaled(low_half(q), _mm256_set1_ps(scale), out);
    store_scaled(high_half(q), _mm256_set1_ps(scale), out + 16);
}

// out[0..31] = scale * q + offset
void store_scaled(__m256i q, float scale, float offset, float* out) {
    store_scaled(low_half(q), _mm256_set1_ps(scale), _mm256_set1_ps(offset), out);
    store_scaled(high_half(q), _mm256_set1_ps(scale), _mm256_set1_ps(offset), out + 16);
}

void decode_avx2(const BlockQ4_0& block, float* out) {
    const __m256i q = _mm256_sub_epi8(nibbles_of_16(block.q), _mm256_set1_epi8(8));
    store_scaled(q, fast_half_at(block.d), out);
}

void decode_avx2(const BlockQ4_1& block, float* out) {
    store_scaled(nibbles_of_16(block.q), fast_half_at(block.d), fast_half_at(block.m), out);
}

void decode_avx2(const BlockQ5_0& block, float* out) {
    const __m256i q = _mm256_or_si256(nibbles_of_16(block.q), sixteens(load_as<uint32_t>(block.fifth)));
    store_scaled(_mm256_sub_epi8(q, _mm256_set1_epi8(16)), fast_half_at(block.d), out);
}

void decode_avx2(const BlockQ5_1& block, float* out) {
    const __m256i q = _mm256_or_si256(nibbles_of_16(block.q), sixteens(load_as<uint32_t>(block.fifth)));
    store_scaled(q, fast_half_at(block.d), fast_half_at(block.m), out);
}

void decode_avx2(const BlockQ8_0& block, float* out) {
    store_scaled(load32(block.q), fast_half_at(block.d), out);
}

// The levels that 32 codes of 4 bits stand for.
__m256i levels_of(__m256i codes, const int8_t* levels) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(levels)), codes);
}

void decode_avx2(const BlockIQ4_NL& block, float* out) {
    store_scaled(levels_of(nibbles_of_16(block.q), kIQ4Levels), fast_half_at(block.d), out);
}

void decode_avx2(const BlockMXFP4& block, float* out) {
    store_scaled(levels_of(nibbles_of_16(block.q), kFP4Levels), power_of_two(block.exponent), out);
}

#include "dequantize_k_avx2.inl"

// Eight values of codebook entries, as in PlainEntries. A level is looked up among eight by the lowest three
// bits of a lane.
struct Avx2Entries {
    static void iq1(uint32_t entry, float scale, float shift, float* out) {
        const __m256 levels =
            _mm256_permutevar8x32_ps(_mm256_setr_ps(-1, 0, 1, 0, 0, 0, 0, 0), two_bits(entry));
        const __m256 shifted = _mm256_add_ps(levels, _mm256_set1_ps(shift));
        _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(scale), shifted));
    }

    static void iq2(uint32_t entry, int signs, float scale, float* out) {
        store_signed(_mm256_setr_ps(8, 25, 43, 0, 0, 0, 0, 0), two_bits(entry), signs, scale, out);
    }

    static void iq3_xxs(uint32_t entries, int signs, float scale, float* out) {
        store_signed(_mm256_setr_ps(4, 12, 20, 28, 36, 44, 52, 62), three_bits(entries), signs, scale, out);
    }

    static void iq3_s(uint32_t entries, int signs, float scale, float* out) {
        store_signed(_mm256_setr_ps(1, 3, 5, 7, 9, 11, 13, 15), three_bits(entries), signs, scale, out);
    }

  private:
    static __m256i two_bits(uint32_t entry) {
        const __m256i fields = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(entry)),
                                                 _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
        return _mm256_and_si256(fields, _mm256_set1_epi32(3));
    }

    // The bits above the three remain.
    static __m256i three_bits(uint32_t entries) {
        return _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(entries)),
                                 _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25));
    }

    static void store_signed(__m256 levels, __m256i numbers, int signs, float scale, float* out) {
        const __m256i sign_on_top =
            _mm256_sllv_epi32(_mm256_set1_epi32(signs), _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
        const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(sign_on_top), _mm256_set1_ps(-0.0f));
        const __m256 level = _mm256_xor_ps(_mm256_permutevar8x32_ps(levels, numbers), sign);
        _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(scale), level));
    }
};

template <typename Block>
void dequantize_row_avx2(const uint8_t* blocks, float* out, int64_t num_values) {
    for (int64_t i = 0; i < num_values; i += Block::kValues, blocks += sizeof(Block))
        decode_avx2(*reinterpret_cast<const Block*>(blocks), out + i);
}

void dequantize_f16_avx2(const uint8_t* row, float* out, int64_t num_values) {
    int64_t i = 0;
    for (; i + 8 <= num_values; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(load16(row + 2 * i)));
    for (; i < num_values; ++i) out[i] = fast_half_at(row + 2 * i);
}

void dequantize_bf16_avx2(const uint8_t* row, float* out, int64_t num_values) {
    int64_t i = 0;
    for (; i + 8 <= num_values; i += 8) {
        const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(row + 2 * i)), 16);
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(bits));
    }
    dequantize_bf16(row + 2 * i, out + i, num_values - i);
}

// Replaces the entries of the types above in a table that fill_dequantize has filled.
[[maybe_unused]] void fill_dequantize_avx2(DequantizeRow* table) {
    table[F16] = dequantize_f16_avx2;
    table[BF16] = dequantize_bf16_avx2;
    table[Q4_0] = dequantize_row_avx2<BlockQ4_0>;
    table[Q4_1] = dequantize_row_avx2<BlockQ4_1>;
    table[Q5_0] = dequantize_row_avx2<BlockQ5_0>;
    table[Q5_1] = dequantize_row_avx2<BlockQ5_1>;
    table[Q8_0] = dequantize_row_avx2<BlockQ8_0>;
    table[Q2_K] = dequantize_row_avx2<BlockQ2_K>;
    table[Q3_K] = dequantize_row_avx2<BlockQ3_K>;
    table[Q4_K] = dequantize_row_avx2<BlockQ4_K>;
    table[Q5_K] = dequantize_row_avx2<BlockQ5_K>;
    table[Q6_K] = dequantize_row_avx2<BlockQ6_K>;
    table[IQ4_NL] = dequantize_row_avx2<BlockIQ4_NL>;
    table[IQ4_XS] = dequantize_row_avx2<BlockIQ4_XS>;
    table[MXFP4] = dequantize_row_avx2<BlockMXFP4>;
    fill_dequantize_iq<Avx2Entries>(table);
}
