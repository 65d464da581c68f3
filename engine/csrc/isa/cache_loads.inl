// What rows of a cache hold, in terms of Vec and VecMath. kBlock elements share what scale() gives; load()
// makes floats of kWidth.

struct CachedF32 {
    static constexpr int64_t kBlock = Vec::kWidth;
    struct Scale {};
    static Scale scale(const uint8_t*, int64_t) { return {}; }
    static Vec::Type load(const uint8_t* row, int64_t d, Scale) {
        return Vec::load(reinterpret_cast<const float*>(row) + d);
    }
};

struct CachedF16 {
    static constexpr int64_t kBlock = Vec::kWidth;
    struct Scale {};
    static Scale scale(const uint8_t*, int64_t) { return {}; }
    static Vec::Type load(const uint8_t* row, int64_t d, Scale) { return VecMath::load_f16(row + 2 * d); }
};

struct CachedBF16 {
    static constexpr int64_t kBlock = Vec::kWidth;
    struct Scale {};
    static Scale scale(const uint8_t*, int64_t) { return {}; }
    static Vec::Type load(const uint8_t* row, int64_t d, Scale) { return VecMath::load_bf16(row + 2 * d); }
};

struct CachedQ8_0 {
    static constexpr int64_t kBlock = 32;
    using Scale = Vec::Type;
    static const uint8_t* block(const uint8_t* row, int64_t d) { return row + d / 32 * sizeof(BlockQ8_0); }
    static Scale scale(const uint8_t* row, int64_t d) { return VecMath::broadcast_f16(block(row, d)); }
    static Vec::Type load(const uint8_t* row, int64_t d, Scale scale) {
        return VecMath::multiply(scale, VecMath::load_int8(block(row, d) + 2 + d % 32));
    }
};
