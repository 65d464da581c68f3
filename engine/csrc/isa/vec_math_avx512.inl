// What attention_kernels.inl needs of a vector beyond Vec, in AVX-512.

struct VecMath {
    using Type = Vec::Type;

    static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
    static Type subtract(Type a, Type b) { return _mm512_sub_ps(a, b); }
    static Type multiply(Type a, Type b) { return _mm512_mul_ps(a, b); }
    static Type divide(Type a, Type b) { return _mm512_div_ps(a, b); }
    // Of two numbers that cannot be compared, the result is b.
    static Type maximum(Type a, Type b) { return _mm512_max_ps(a, b); }
    static Type minimum(Type a, Type b) { return _mm512_min_ps(a, b); }
    static Type magnitude(Type v) { return _mm512_abs_ps(v); }
    static Type with_sign_of(Type sign, Type magnitude) {
        return _mm512_or_ps(_mm512_and_ps(_mm512_set1_ps(-0.0f), sign), magnitude);
    }
    // value, or 0 where x < limit
    static Type unless_below(Type x, Type limit, Type value) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), value);
    }
    // v * 2^n, n being the integer in the low bits of `power`
    static Type times_power_of_two(Type v, Type power) {
        const __m512i exponents = _mm512_slli_epi32(_mm512_castps_si512(power), 23);
        return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(v), exponents));
    }

    // Keeps the compiler from loading v once for each of its uses.
    static Type in_register(Type v) {
        asm("" : "+v"(v));
        return v;
    }

    static Type load_f16(const uint8_t* p) { return _mm512_cvtph_ps(load32(p)); }
    static Type load_bf16(const uint8_t* p) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16));
    }
    static Type load_int8(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p))); }
    static Type broadcast_f16(const uint8_t* p) {
        return _mm512_cvtph_ps(_mm256_set1_epi16(load_as<int16_t>(p)));
    }
    static void store_f16(uint8_t* p, Type v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }

    // Lane i is the sum of the lanes of v[i], all added in the same order.
    static Type sums(const Type* v) {
        return sums_across(sums_across(sums_of_four(v), sums_of_four(v + 4)),
                           sums_across(sums_of_four(v + 8), sums_of_four(v + 12)));
    }

  private:
    // Of four parts of 128 bits each: the first and third plus the second and fourth of a, then of b.
    static Type sums_across(Type a, Type b) {
        return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    // In each part of 128 bits the sums of that part of v[0..3].
    static Type sums_of_four(const Type* v) {
        const __m512d a = _mm512_castps_pd(sums_of_two(v[0], v[1]));
        const __m512d b = _mm512_castps_pd(sums_of_two(v[2], v[3]));
        return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    static Type sums_of_two(Type a, Type b) {
        return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
};
