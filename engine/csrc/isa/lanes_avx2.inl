// The lanes of panel_kernels.inl in pairs of AVX2 registers. Included after dequantize_avx2.inl.

struct Lanes {
    struct Codes {
        __m256i a, b;
    };
    struct Floats {
        __m256 a, b;
    };

    static constexpr int kSignedOffset = 0;

    static Codes load(const uint8_t* p) { return {load32(p), load32(p + 32)}; }

    template <int kShift>
    static Codes field(Codes c, int mask) {
        const __m256i fields = _mm256_set1_epi8(static_cast<char>(mask));
        return {_mm256_and_si256(moved<kShift>(c.a), fields), _mm256_and_si256(moved<kShift>(c.b), fields)};
    }

    static Codes merge(Codes x, Codes y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
    static Codes lookup(const int8_t* levels, Codes c) {
        return {levels_of(c.a, levels), levels_of(c.b, levels)};
    }
    static Codes as_operand(Codes c) { return c; }

    template <bool kSigned, int kLargest, int kVectors, int T>
    static void products(const Codes* codes, const uint8_t* const* x, int first, Floats* p) {
        for (int t = 0; t < T; ++t) {
            const uint8_t* high = x[t] + first;
            const uint8_t* low = high + QuantizedRows::kLow;
            __m256i a[kVectors], b[kVectors];
            for (int i = 0; i < kVectors; ++i) {
                a[i] = codes[i].a;
                b[i] = codes[i].b;
            }
            p[t] = {_mm256_cvtepi32_ps(_mm256_add_epi32(dots<kSigned, kVectors, kLargest * 127>(a, high, 128),
                                                        dots<kSigned, kVectors, kLargest * 64>(a, low, 1))),
                    _mm256_cvtepi32_ps(_mm256_add_epi32(dots<kSigned, kVectors, kLargest * 127>(b, high, 128),
                                                        dots<kSigned, kVectors, kLargest * 64>(b, low, 1)))};
        }
    }

    static Floats halves(const uint8_t* p) {
        return {_mm256_cvtph_ps(load16(p)), _mm256_cvtph_ps(load16(p + 16))};
    }
    static Floats unsigned_bytes(const uint8_t* p) { return floats_of(load16(p)); }
    static Floats low_nibbles(const uint8_t* p) { return floats_of(low_four_bits(load16(p))); }
    static Floats high_nibbles(const uint8_t* p) {
        return floats_of(low_four_bits(_mm_srli_epi16(load16(p), 4)));
    }

    static Floats signed_bytes(const uint8_t* p) {
        const __m128i bytes = load16(p);
        return {to_floats(bytes), to_floats(_mm_unpackhi_epi64(bytes, bytes))};
    }

    static Floats exponents(const uint8_t* p) {
        alignas(32) float values[16];
        for (int i = 0; i < 16; ++i) values[i] = power_of_two(p[i]);
        return {_mm256_load_ps(values), _mm256_load_ps(values + 8)};
    }

    static Floats no_floats() { return broadcast(0.0f); }
    static Floats broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
    static Floats multiply(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
    static Floats fma(Floats x, Floats y, Floats sum) {
        return {_mm256_fmadd_ps(x.a, y.a, sum.a), _mm256_fmadd_ps(x.b, y.b, sum.b)};
    }
    static void store(float* p, Floats v) {
        _mm256_storeu_ps(p, v.a);
        _mm256_storeu_ps(p + 8, v.b);
    }

  private:
    template <int kShift>
    static __m256i moved(__m256i c) {
        if constexpr (kShift > 0) return _mm256_slli_epi16(c, kShift);
        if constexpr (kShift < 0) return _mm256_srli_epi16(c, -kShift);
        return c;
    }

    // factor times the dot products of eight rows. A product of two bytes is at most kProduct, and pairs of
    // them are added in 16 bits for as long as they fit.
    template <bool kSigned, int kVectors, int kProduct>
    static __m256i dots(const __m256i* codes, const uint8_t* x, int16_t factor) {
        constexpr int kFit = 32767 / (2 * kProduct), kRun = kFit < kVectors ? kFit : kVectors;
        static_assert(kRun >= 1);
        __m256i sum = _mm256_setzero_si256();
        for (int i = 0; i < kVectors; i += kRun) {
            __m256i pairs = pairs_of<kSigned>(codes[i], x + 4 * i);
            for (int j = i + 1; j < i + kRun && j < kVectors; ++j)
                pairs = _mm256_add_epi16(pairs, pairs_of<kSigned>(codes[j], x + 4 * j));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor)));
        }
        return sum;
    }

    template <bool kSigned>
    static __m256i pairs_of(__m256i codes, const uint8_t* x) {
        const __m256i four = _mm256_set1_epi32(load_as<int32_t>(x));
        if constexpr (kSigned)
            return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(four, codes));
        return _mm256_maddubs_epi16(codes, four);
    }

    static __m128i low_four_bits(__m128i v) { return _mm_and_si128(v, _mm_set1_epi8(15)); }

    static Floats floats_of(__m128i bytes) {
        return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
    }
};
