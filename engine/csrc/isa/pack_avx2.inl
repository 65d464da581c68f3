// What pack_panels.inl needs of vectors, in AVX2. Included after dequantize_avx2.inl.

struct PackVectors {
    using Row = __m256i;

    static Row zero() { return _mm256_setzero_si256(); }
    static Row load(const void* p) { return load32(p); }

    // Past the caches: panels are read much later, and lines that are written whole need not be read first.
    static void store(uint8_t* p, Row row) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), row); }
    static void finish_stores() { _mm_sfence(); }

    static Row nibbles(const uint8_t* q) { return nibbles_of_16(q); }
    static Row sixteens(const uint8_t* bits) { return ::ktdesk::sixteens(load_as<uint32_t>(bits)); }

    static Row field(Row row, int shift, int mask) {
        const Row moved = shift >= 0 ? _mm256_slli_epi16(row, shift) : _mm256_srli_epi16(row, -shift);
        return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask)));
    }

    static Row merge(Row x, Row y) { return _mm256_or_si256(x, y); }

    static void transpose_dwords(const Row* rows, Row* halves) {
        transpose_eight(rows, halves);
        transpose_eight(rows + 8, halves + 1);
    }

    static void transpose_words(const Row* rows, Row* columns) {
        Row upper[8], lower[8];
        transpose_words_of_eight(rows, upper);
        transpose_words_of_eight(rows + 8, lower);
        for (int k = 0; k < 8; ++k) {
            columns[k] = _mm256_permute2x128_si256(upper[k], lower[k], 0x20);
            columns[8 + k] = _mm256_permute2x128_si256(upper[k], lower[k], 0x31);
        }
    }

  private:
    // out[2 * i] = dword i of the eight rows
    static void transpose_eight(const Row* rows, Row* out) {
        Row fours[8];  // of rows 0..3, then 4..7: dwords i and i + 4
        for (int half = 0; half < 2; ++half) {
            const Row* r = rows + 4 * half;
            const Row a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpackhi_epi32(r[0], r[1]);
            const Row c = _mm256_unpacklo_epi32(r[2], r[3]), d = _mm256_unpackhi_epi32(r[2], r[3]);
            fours[4 * half] = _mm256_unpacklo_epi64(a, c);
            fours[4 * half + 1] = _mm256_unpackhi_epi64(a, c);
            fours[4 * half + 2] = _mm256_unpacklo_epi64(b, d);
            fours[4 * half + 3] = _mm256_unpackhi_epi64(b, d);
        }
        for (int i = 0; i < 4; ++i) {
            out[2 * i] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20);
            out[2 * (i + 4)] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31);
        }
    }

    // out[k]: in each half, word k of that half of the eight rows.
    static void transpose_words_of_eight(const Row* rows, Row* out) {
        Row pairs[8];  // of rows 2i and 2i + 1: words 0..3, then 4..7
        for (int i = 0; i < 4; ++i) {
            pairs[2 * i] = _mm256_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
        }
        for (int i = 0; i < 2; ++i) {  // words 4i..4i + 3
            const Row a = _mm256_unpacklo_epi32(pairs[i], pairs[2 + i]);
            const Row b = _mm256_unpackhi_epi32(pairs[i], pairs[2 + i]);
            const Row c = _mm256_unpacklo_epi32(pairs[4 + i], pairs[6 + i]);
            const Row d = _mm256_unpackhi_epi32(pairs[4 + i], pairs[6 + i]);
            out[4 * i] = _mm256_unpacklo_epi64(a, c);
            out[4 * i + 1] = _mm256_unpackhi_epi64(a, c);
            out[4 * i + 2] = _mm256_unpacklo_epi64(b, d);
            out[4 * i + 3] = _mm256_unpackhi_epi64(b, d);
        }
    }
};
