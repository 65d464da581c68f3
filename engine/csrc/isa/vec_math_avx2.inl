// What attention_kernels.inl needs of a vector beyond Vec, in AVX2 and F16C.

struct VecMath {
    using Type = Vec::Type;

    static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
    static Type subtract(Type a, Type b) { return _mm256_sub_ps(a, b); }
    static Type multiply(Type a, Type b) { return _mm256_mul_ps(a, b); }
    static Type divide(Type a, Type b) { return _mm256_div_ps(a, b); }
    // Of two numbers that cannot be compared, the result is b.
    static Type maximum(Type a, Type b) { return _mm256_max_ps(a, b); }
    static Type minimum(Type a, Type b) { return _mm256_min_ps(a, b); }
    static Type magnitude(Type v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
    static Type with_sign_of(Type sign, Type magnitude) {
        return _mm256_or_ps(_mm256_and_ps(_mm256_set1_ps(-0.0f), sign), magnitude);
    }
    // value, or 0 where x < limit
    static Type unless_below(Type x, Type limit, Type value) {
        return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), value);
    }
    // v * 2^n, n being the integer in the low bits of `power`
    static Type times_power_of_two(Type v, Type power) {
        const __m256i exponents = _mm256_slli_epi32(_mm256_castps_si256(power), 23);
        return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), exponents));
    }

    // Keeps the compiler from loading v once for each of its uses.
    static Type in_register(Type v) {
        asm("" : "+x"(v));
        return v;
    }

    static Type load_f16(const uint8_t* p) { return _mm256_cvtph_ps(load16(p)); }
    static Type load_bf16(const uint8_t* p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
    }
    static Type load_int8(const uint8_t* p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    }
    static Type broadcast_f16(const uint8_t* p) {
        return _mm256_cvtph_ps(_mm_set1_epi16(load_as<int16_t>(p)));
    }
    static void store_f16(uint8_t* p, Type v) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }

    // Lane i is the sum of the lanes of v[i], all added in the same order.
    static Type sums(const Type* v) {
        const Type low = sums_of_four(v), high = sums_of_four(v + 4);
        return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                             _mm256_permute2f128_ps(low, high, 0x31));
    }

  private:
    static Type sums_of_four(const Type* v) {
        const Type a = sums_of_two(v[0], v[1]), b = sums_of_two(v[2], v[3]);
        const __m256d a2 = _mm256_castps_pd(a), b2 = _mm256_castps_pd(b);
        return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a2, b2)),
                             _mm256_castpd_ps(_mm256_unpackhi_pd(a2, b2)));
    }
    static Type sums_of_two(Type a, Type b) {
        return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    }
};
