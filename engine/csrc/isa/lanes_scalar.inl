// The lanes of panel_kernels.inl in plain C++. Included after dequantize.inl.

struct Lanes {
    struct Codes {
        uint8_t byte[64];
    };
    struct Floats {
        float lane[16];
    };

    static constexpr int kSignedOffset = 0;

    static Codes load(const uint8_t* p) {
        Codes c;
        memcpy(c.byte, p, 64);
        return c;
    }

    template <int kShift>
    static Codes field(Codes c, int mask) {
        for (uint8_t& byte : c.byte)
            byte = static_cast<uint8_t>((kShift >= 0 ? byte << (kShift & 7) : byte >> (-kShift & 7)) & mask);
        return c;
    }

    static Codes merge(Codes x, Codes y) {
        for (int i = 0; i < 64; ++i) x.byte[i] = static_cast<uint8_t>(x.byte[i] | y.byte[i]);
        return x;
    }

    static Codes lookup(const int8_t* levels, Codes c) {
        for (uint8_t& byte : c.byte) byte = static_cast<uint8_t>(levels[byte]);
        return c;
    }

    static Codes as_operand(Codes c) { return c; }

    template <bool kSigned, int, int kVectors, int T>
    static void products(const Codes* codes, const uint8_t* const* x, int first, Floats* p) {
        for (int t = 0; t < T; ++t) {
            const int8_t* high = reinterpret_cast<const int8_t*>(x[t]) + first;
            int32_t sums[16] = {};
            for (int i = 0; i < kVectors; ++i)
                for (int n = 0; n < 16; ++n)
                    for (int j = 0; j < 4; ++j)
                        sums[n] += code_of<kSigned>(codes[i].byte[4 * n + j]) *
                                   (128 * high[4 * i + j] + high[QuantizedRows::kLow + 4 * i + j]);
            for (int n = 0; n < 16; ++n) p[t].lane[n] = to_float(sums[n]);
        }
    }

    static Floats halves(const uint8_t* p) {
        Floats f;
        for (int n = 0; n < 16; ++n) f.lane[n] = half_at(p + 2 * n);
        return f;
    }

    static Floats unsigned_bytes(const uint8_t* p) {
        Floats f;
        for (int n = 0; n < 16; ++n) f.lane[n] = to_float(p[n]);
        return f;
    }

    static Floats signed_bytes(const uint8_t* p) {
        Floats f;
        for (int n = 0; n < 16; ++n) f.lane[n] = to_float(static_cast<int8_t>(p[n]));
        return f;
    }

    static Floats low_nibbles(const uint8_t* p) {
        Floats f;
        for (int n = 0; n < 16; ++n) f.lane[n] = to_float(p[n] & 15);
        return f;
    }

    static Floats high_nibbles(const uint8_t* p) {
        Floats f;
        for (int n = 0; n < 16; ++n) f.lane[n] = to_float(p[n] >> 4);
        return f;
    }

    static Floats exponents(const uint8_t* p) {
        Floats f;
        for (int n = 0; n < 16; ++n) f.lane[n] = power_of_two(p[n]);
        return f;
    }

    static Floats no_floats() { return {}; }

    static Floats broadcast(float x) {
        Floats f;
        for (float& lane : f.lane) lane = x;
        return f;
    }

    static Floats multiply(Floats x, Floats y) {
        for (int n = 0; n < 16; ++n) x.lane[n] *= y.lane[n];
        return x;
    }

    static Floats fma(Floats x, Floats y, Floats sum) {
        for (int n = 0; n < 16; ++n) sum.lane[n] += x.lane[n] * y.lane[n];
        return sum;
    }

    static void store(float* p, const Floats& v) { memcpy(p, v.lane, sizeof(v.lane)); }

  private:
    template <bool kSigned>
    static int code_of(uint8_t code) {
        return kSigned ? static_cast<int8_t>(code) : code;
    }
};
