// Loops that measure what the machine can do (probes.h). An ISA file includes this after Vec and before
// row_kernels.inl.

// 64 bytes as integers: what is read, and what bytes are multiplied in.
#if defined(__AVX512F__)
struct Words {
    using Type = __m512i;
    using Sums = __m512i;
    static Sums zero() { return _mm512_setzero_si512(); }
    static Type load(const uint8_t* p) { return _mm512_loadu_si512(p); }
    static Sums add(Sums x, Sums y) { return _mm512_add_epi32(x, y); }
    static Sums add_loaded(Sums sum, const uint8_t* p) { return add(sum, load(p)); }
    static void store(void* p, Sums x) { _mm512_storeu_si512(p, x); }
    static Type broadcast(const uint8_t* p) {
        int32_t four;
        memcpy(&four, p, 4);
        return _mm512_set1_epi32(four);
    }
    // Adds products of unsigned and signed bytes, four to a sum.
    static Sums multiply(Sums sum, Type codes, Type x) {
#if defined(__AVX512VNNI__)
        return _mm512_dpbusd_epi32(sum, codes, x);
#else
        const Type pairs = _mm512_maddubs_epi16(codes, x);
        return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#endif
    }
};
// Rows of weights and sums fit the registers, and there are enough sums that none is waited for: a chain of
// kByteSums for each row.
constexpr int kByteRows = 4, kByteSums = 4, kFloatRows = 4, kFloatTokens = 4;
#elif defined(__AVX2__)
struct Words {
    struct Type {
        __m256i a, b;
    };
    using Sums = Type;
    static Sums zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
    static Type load(const uint8_t* p) { return {half(p), half(p + 32)}; }
    static Sums add_loaded(Sums sum, const uint8_t* p) { return add(sum, load(p)); }
    static Sums add(Sums x, Sums y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
    static void store(void* p, Sums x) {
        _mm256_storeu_si256(static_cast<__m256i*>(p), x.a);
        _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, x.b);
    }
    static Type broadcast(const uint8_t* p) {
        int32_t four;
        memcpy(&four, p, 4);
        return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
    }
    static Sums multiply(Sums sum, Type codes, Type x) {
        return {_mm256_add_epi32(sum.a, products(codes.a, x.a)),
                _mm256_add_epi32(sum.b, products(codes.b, x.b))};
    }

  private:
    static __m256i half(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static __m256i products(__m256i codes, __m256i x) {
        return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
    }
};
constexpr int kByteRows = 2, kByteSums = 1, kFloatRows = 4, kFloatTokens = 2;
#else
struct Words {
    struct Type {
        uint8_t byte[64];
    };
    struct Sums {
        uint32_t lane[16];
    };
    static Sums zero() { return {}; }
    static Type load(const uint8_t* p) {
        Type x;
        memcpy(x.byte, p, 64);
        return x;
    }
    static Sums add(Sums x, Sums y) {
        for (int n = 0; n < 16; ++n) x.lane[n] += y.lane[n];
        return x;
    }
    static Sums add_loaded(Sums sum, const uint8_t* p) {
        Sums x;
        memcpy(x.lane, p, 64);
        return add(sum, x);
    }
    static void store(void* p, const Sums& x) { memcpy(p, x.lane, 64); }
    static const uint8_t* broadcast(const uint8_t* p) { return p; }
    static Sums multiply(Sums sum, const Type& codes, const uint8_t* x) {
        for (int n = 0; n < 16; ++n)
            for (int j = 0; j < 4; ++j)
                sum.lane[n] += static_cast<uint32_t>(codes.byte[4 * n + j] * static_cast<int8_t>(x[j]));
        return sum;
    }
};
constexpr int kByteRows = 2, kByteSums = 1, kFloatRows = 4, kFloatTokens = 2;
#endif

double sum_of(const Words::Sums& words) {
    uint32_t lanes[16];
    Words::store(lanes, words);
    double sum = 0;
    for (uint32_t lane : lanes) sum += lane;
    return sum;
}

constexpr int64_t kReadNear = 4096, kReadFar = 16384;

// num_bytes: a multiple of 256. Asked for ahead as weights are, see panel_kernels.inl.
double read_bytes(const uint8_t* data, int64_t num_bytes) {
    Words::Sums sums[4] = {Words::zero(), Words::zero(), Words::zero(), Words::zero()};
    for (const uint8_t* p = data; p < data + num_bytes; p += 256)
        for (int i = 0; i < 4; ++i) {
            __builtin_prefetch(p + kReadNear + 64 * i, 0, 3);
            __builtin_prefetch(p + kReadFar + 64 * i, 0, 2);
            sums[i] = Words::add_loaded(sums[i], p + 64 * i);
        }
    return sum_of(Words::add(Words::add(sums[0], sums[1]), Words::add(sums[2], sums[3])));
}

constexpr int kByteTokens = 4;

// The place of the inputs changes with the round: what does not change would be computed once, before the
// loop.
constexpr int64_t kPeakInputsMask = kPeakOperandBytes / 2 / 64 - 1;

double multiply_bytes(const uint8_t* operands, int64_t num_rounds) {
    // Unrolled, so that the compiler keeps all sums in registers.
    Words::Type codes[kByteRows];
    Words::Sums sums[kByteRows * kByteSums];
    for (int r = 0; r < kByteRows; ++r) codes[r] = Words::load(operands + kPeakOperandBytes / 2 + 64 * r);
    for (Words::Sums& sum : sums) sum = Words::zero();
    for (int64_t round = 0; round < num_rounds; ++round) {
        const uint8_t* inputs = operands + (round & kPeakInputsMask) * 64;
#pragma GCC unroll 4
        for (int t = 0; t < kByteTokens; ++t) {
            const auto x = Words::broadcast(inputs + 4 * t);
#pragma GCC unroll 4
            for (int r = 0; r < kByteRows; ++r)
                sums[t % kByteSums * kByteRows + r] =
                    Words::multiply(sums[t % kByteSums * kByteRows + r], codes[r], x);
        }
    }
    Words::Sums all = Words::zero();
#pragma GCC unroll 16
    for (int i = 0; i < kByteRows * kByteSums; ++i) all = Words::add(all, sums[i]);
    return sum_of(all);
}

double multiply_floats(const uint8_t* operands, int64_t num_rounds) {
    const float* floats = reinterpret_cast<const float*>(operands);
    Vec::Type weights[kFloatRows], sums[kFloatRows][kFloatTokens];
    for (int r = 0; r < kFloatRows; ++r) {
        weights[r] = Vec::load(floats + kPeakOperandBytes / 8 + Vec::kWidth * r);
        for (int t = 0; t < kFloatTokens; ++t) sums[r][t] = Vec::zero();
    }
    for (int64_t round = 0; round < num_rounds; ++round) {
        const float* inputs = floats + (round & kPeakInputsMask) * 16;
        for (int t = 0; t < kFloatTokens; ++t) {
            const Vec::Type x = Vec::broadcast(inputs[t]);
            for (int r = 0; r < kFloatRows; ++r) sums[r][t] = Vec::fma(weights[r], x, sums[r][t]);
        }
    }
    double sum = 0;
    for (int r = 0; r < kFloatRows; ++r)
        for (int t = 0; t < kFloatTokens; ++t) sum += Vec::sum(sums[r][t]);
    return sum;
}

void fill_probes(RowKernels& table) {
    table.read_bytes = read_bytes;
    table.peaks[0] = {"int8", 2 * 64 * kByteRows * kByteTokens, multiply_bytes};
    table.peaks[1] = {"float32", 2 * Vec::kWidth * kFloatRows * kFloatTokens, multiply_floats};
}
