// The vector of row_kernels.inl in AVX-512 registers.

struct Vec {
    using Type = __m512;
    static constexpr int64_t kWidth = 16;

    static Type zero() { return _mm512_setzero_ps(); }
    static Type broadcast(float x) { return _mm512_set1_ps(x); }
    static Type load(const float* p) { return _mm512_loadu_ps(p); }
    static Type load_first(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
    static void store(float* p, Type v) { _mm512_storeu_ps(p, v); }
    static void store_first(float* p, Type v, int64_t n) { _mm512_mask_storeu_ps(p, first(n), v); }
    static Type fma(Type a, Type b, Type sum) { return _mm512_fmadd_ps(a, b, sum); }
    static float sum(Type v) {
        const __m256 high = _mm512_extractf32x8_ps(v, 1);
        const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), high);
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }

  private:
    static __mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
};

// 24 accumulators, 6 inputs and a weight of the 32 registers.
constexpr int64_t kTileRows = 4;
constexpr int64_t kTileTokens = 6;
