// Floats to the rows of a cache, in terms of Vec and VecMath; the words are in cache_rows.inl.

void store_row_f32(const float* x, int64_t length, uint8_t* row) {
    memcpy(row, x, static_cast<size_t>(length) * sizeof(float));
    const int64_t rest = padded_length(length) - length;
    memset(row + length * 4, 0, static_cast<size_t>(rest) * sizeof(float));
}

void store_row_f16(const float* x, int64_t length, uint8_t* row) {
    const Vec::Type limit = Vec::broadcast(kLargestF16), bottom = Vec::broadcast(-kLargestF16);
    for (int64_t d = 0; d < padded_length(length); d += Vec::kWidth) {
        const int64_t rest = length - d;
        const Vec::Type v = rest >= Vec::kWidth ? Vec::load(x + d)
                            : rest > 0          ? Vec::load_first(x + d, rest)
                                                : Vec::zero();
        const Vec::Type bounded = VecMath::minimum(limit, VecMath::maximum(bottom, v));
        VecMath::store_f16(row + 2 * d, VecMath::add(bounded, VecMath::subtract(v, v)));
    }
}

void store_row_bf16(const float* x, int64_t length, uint8_t* row) {
    for (int64_t d = 0; d < length; ++d) store_as(row + 2 * d, bf16_bits(clamped(x[d], kLargestBF16)));
    const int64_t rest = padded_length(length) - length;
    memset(row + 2 * length, 0, static_cast<size_t>(2 * rest));
}

// Of 32 numbers; NaN where one of them is not finite.
float largest_of_block(const float* x) {
    float largest[8] = {}, probes[8] = {};
    for (int k = 0; k < 32; k += 8)
        for (int i = 0; i < 8; ++i) {
            const float magnitude = __builtin_fabsf(x[k + i]);
            largest[i] = magnitude > largest[i] ? magnitude : largest[i];
            probes[i] += x[k + i] * 0.0f;
        }
    float all = 0;
    for (int i = 0; i < 8; ++i) all = (largest[i] > all ? largest[i] : all) + probes[i];
    return all;
}

// Codes are rounded against the scale as it is stored.
void store_row_q8_0(const float* x, int64_t length, uint8_t* row) {
    constexpr float kRounder = 12582912.0f;  // leaves a number's nearest integer
    for (int64_t d = 0; d < length; d += 32, row += sizeof(BlockQ8_0)) {
        const uint16_t scale = f16_bits(clamped(largest_of_block(x + d) / 127, kLargestF16));
        const float stored = half_to_float(scale);
        const float inverse = stored > 0 ? 1 / stored : 0.0f;  // of 0 and of NaN: no codes
        store_as(row, scale);
        for (int i = 0; i < 32; ++i) {
            float code = inverse > 0 ? x[d + i] * inverse : 0.0f;
            code = code > 127 ? 127.0f : code < -127 ? -127.0f : code;
            row[2 + i] = static_cast<uint8_t>(static_cast<int8_t>((code + kRounder) - kRounder));
        }
    }
}

void fill_store_row(RowKernels& table) {
    table.store_row[F32] = store_row_f32;
    table.store_row[F16] = store_row_f16;
    table.store_row[BF16] = store_row_bf16;
    table.store_row[Q8_0] = store_row_q8_0;
}
