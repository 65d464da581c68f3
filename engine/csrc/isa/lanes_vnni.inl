// The lanes of panel_kernels.inl in AVX-512 registers with VNNI. Included after dequantize_avx2.inl.

struct Lanes {
    using Codes = __m512i;
    using Ints = __m512i;
    using Floats = __m512;

    // The product wants unsigned codes: signed ones are raised, and lowered again by the sums of the row.
    static constexpr int kSignedOffset = 128;

    static Codes load(const uint8_t* p) { return _mm512_loadu_si512(p); }

    template <int kShift>
    static Codes field(Codes c, int mask) {
        const __m512i fields = _mm512_set1_epi8(static_cast<char>(mask));
        if constexpr (kShift > 0) return _mm512_and_si512(_mm512_slli_epi16(c, kShift), fields);
        if constexpr (kShift < 0) return _mm512_and_si512(_mm512_srli_epi16(c, -kShift), fields);
        return _mm512_and_si512(c, fields);
    }

    static Codes merge(Codes x, Codes y) { return _mm512_or_si512(x, y); }
    static Codes lookup(const int8_t* levels, Codes c) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load16(levels)), c);
    }
    static Codes as_operand(Codes c) {
        return _mm512_xor_si512(c, _mm512_set1_epi8(static_cast<char>(0x80)));
    }

    // Eight rows have one sum each for both bytes, so that all stay in registers. Fewer have one for each
    // byte, and one row has two, so that a product need not wait for the one before it.
    template <bool, int, int kVectors, int T>
    static void products(const Codes* codes, const uint8_t* const* x, int first, Floats* p) {
        const int low = first + static_cast<int>(QuantizedRows::kLow);
        Ints sums[T];
        if constexpr (T >= 8) {
            for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_si512();
            add_dots<kVectors, T>(codes, x, first, sums);
            for (int t = 0; t < T; ++t) sums[t] = _mm512_slli_epi32(sums[t], 7);
            add_dots<kVectors, T>(codes, x, low, sums);
        } else {
            Ints lows[T];
            dots<kVectors, T>(codes, x, first, sums);
            dots<kVectors, T>(codes, x, low, lows);
            for (int t = 0; t < T; ++t) sums[t] = _mm512_add_epi32(_mm512_slli_epi32(sums[t], 7), lows[t]);
        }
        for (int t = 0; t < T; ++t) p[t] = _mm512_cvtepi32_ps(sums[t]);
    }

    static Floats halves(const uint8_t* p) { return _mm512_cvtph_ps(load32(p)); }
    static Floats unsigned_bytes(const uint8_t* p) { return floats_of(load16(p)); }
    static Floats signed_bytes(const uint8_t* p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p)));
    }
    static Floats low_nibbles(const uint8_t* p) {
        return floats_of(_mm_and_si128(load16(p), _mm_set1_epi8(15)));
    }
    static Floats high_nibbles(const uint8_t* p) {
        return floats_of(_mm_and_si128(_mm_srli_epi16(load16(p), 4), _mm_set1_epi8(15)));
    }

    // As power_of_two: below 2 the result is subnormal.
    static Floats exponents(const uint8_t* p) {
        const __m512i e = _mm512_cvtepu8_epi32(load16(p));
        const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
        const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
        const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
        return _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_small, normal, subnormal));
    }

    static Floats no_floats() { return _mm512_setzero_ps(); }
    static Floats broadcast(float x) { return _mm512_set1_ps(x); }
    static Floats multiply(Floats x, Floats y) { return _mm512_mul_ps(x, y); }
    static Floats fma(Floats x, Floats y, Floats sum) { return _mm512_fmadd_ps(x, y, sum); }
    static void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }

  private:
    template <int kVectors, int T>
    static void add_dots(const Codes* codes, const uint8_t* const* x, int first, Ints* sums) {
        for (int i = 0; i < kVectors; ++i)
            for (int t = 0; t < T; ++t) sums[t] = dot(sums[t], codes[i], x[t] + first + 4 * i);
    }

    template <int kVectors, int T>
    static void dots(const Codes* codes, const uint8_t* const* x, int first, Ints* sums) {
        constexpr int kSums = T == 1 ? 2 : 1;
        Ints parts[kSums][T];
        for (int i = 0; i < kSums; ++i) {
            for (int t = 0; t < T; ++t) parts[i][t] = _mm512_setzero_si512();
            add_dots<kVectors / kSums, T>(codes + i * (kVectors / kSums), x,
                                          first + 4 * i * (kVectors / kSums), parts[i]);
        }
        for (int t = 0; t < T; ++t)
            sums[t] = kSums == 1 ? parts[0][t] : _mm512_add_epi32(parts[0][t], parts[kSums - 1][t]);
    }

    // sum + codes times the four bytes at x. The compiler would load these into a register first.
    static Ints dot(Ints sum, Codes codes, const uint8_t* x) {
        asm("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(codes), "m"(*reinterpret_cast<const uint8_t (*)[4]>(x)));
        return sum;
    }

    static Floats floats_of(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }
};
