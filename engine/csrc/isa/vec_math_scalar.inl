// What attention_kernels.inl needs of a vector beyond Vec, without intrinsics.

struct VecMath {
    using Type = Vec::Type;

    template <class Operation>
    static Type each(const Operation& operation) {
        Type v;
        for (int i = 0; i < Vec::kWidth; ++i) v.lane[i] = operation(i);
        return v;
    }

    static Type add(Type a, Type b) {
        return each([&](int i) { return a.lane[i] + b.lane[i]; });
    }
    static Type subtract(Type a, Type b) {
        return each([&](int i) { return a.lane[i] - b.lane[i]; });
    }
    static Type multiply(Type a, Type b) {
        return each([&](int i) { return a.lane[i] * b.lane[i]; });
    }
    static Type divide(Type a, Type b) {
        return each([&](int i) { return a.lane[i] / b.lane[i]; });
    }
    // Of two numbers that cannot be compared, the result is b.
    static Type maximum(Type a, Type b) {
        return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    static Type minimum(Type a, Type b) {
        return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    static Type magnitude(Type v) {
        return each([&](int i) { return __builtin_fabsf(v.lane[i]); });
    }
    static Type with_sign_of(Type sign, Type magnitude) {
        return each([&](int i) { return __builtin_copysignf(magnitude.lane[i], sign.lane[i]); });
    }
    // value, or 0 where x < limit
    static Type unless_below(Type x, Type limit, Type value) {
        return each([&](int i) { return x.lane[i] < limit.lane[i] ? 0.0f : value.lane[i]; });
    }
    // v * 2^n, n being the integer in the low bits of `power`
    static Type times_power_of_two(Type v, Type power) {
        return each(
            [&](int i) { return float_of_bits(bits_of(v.lane[i]) + (bits_of(power.lane[i]) << 23)); });
    }

    static Type in_register(Type v) { return v; }

    static Type load_f16(const uint8_t* p) {
        return each([&](int i) { return half_at(p + 2 * i); });
    }
    static Type load_bf16(const uint8_t* p) {
        return each([&](int i) { return float_of_bits(uint32_t{load_as<uint16_t>(p + 2 * i)} << 16); });
    }
    static Type load_int8(const uint8_t* p) {
        return each([&](int i) { return to_float(static_cast<int8_t>(p[i])); });
    }
    static Type broadcast_f16(const uint8_t* p) { return Vec::broadcast(half_at(p)); }
    static void store_f16(uint8_t* p, Type v) {
        for (int i = 0; i < Vec::kWidth; ++i) store_as(p + 2 * i, f16_bits(v.lane[i]));
    }

    // Lane i is the sum of the lanes of v[i], all added in the same order.
    static Type sums(const Type* v) {
        return each([&](int i) { return Vec::sum(v[i]); });
    }
};
