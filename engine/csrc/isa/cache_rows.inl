// Floats to the rows of a cache. A finite number too large for 16 bits becomes the largest that they can say;
// what is not finite becomes NaN, so that damage is seen in the results.

template <class T>
void store_as(uint8_t* bytes, T value) {
    memcpy(bytes, &value, sizeof(value));
}

uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

constexpr float kLargestF16 = 65504.0f;
constexpr float kLargestBF16 = 3.38953139e38f;

// Of a magnitude of at most kLargestF16, or NaN. Rounds to the nearest, of two as near to the even one.
uint16_t f16_bits(float x) {
    const uint32_t sign = bits_of(x) >> 16 & 0x8000, magnitude = bits_of(x) & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    // Subnormal halves are multiples of 2^-24, which is the last bit of 0.5.
    if (magnitude < 0x38800000)
        return static_cast<uint16_t>(sign | (bits_of(float_of_bits(magnitude) + 0.5f) - bits_of(0.5f)));
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

uint16_t bf16_bits(float x) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return static_cast<uint16_t>(x != x ? 0x7fc0 : rounded);
}

// NaN where x is not finite.
float clamped(float x, float limit) {
    const float bounded = x < -limit ? -limit : x > limit ? limit : x;
    return bounded + (x - x);
}
