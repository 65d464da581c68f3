// Products of panels (panels.h) with quantized rows (quantized_rows.h), in terms of one set of lanes. An ISA
// file defines, before it includes this:
//   struct Lanes {
//     Codes: 64 bytes; Ints, Floats: 16 lanes
//     load(p), load_line(p); field<shift>(codes, mask): bytes moved up by shift (down where negative),
//     masked; merge(a, b): or; lookup(levels, codes): 16 levels of a byte; as_operand(codes): signed codes
//     for products<kSigned, kLargest, kVectors, T>(codes, x, first, p): p[t][n] = the sum over i < kVectors
//     of the four codes that codes[i] has for row n times the four activations first + 4i.. of the group at
//     x[t] (quantized_rows.h), no code being larger than kLargest; halves(p), unsigned_bytes(p),
//     signed_bytes(p), low_nibbles(p), high_nibbles(p), exponents(p): 16 as floats; no_floats(),
//     broadcast(x), multiply(a, b), fma(a, b, sum), store(p, v); kSignedOffset: what as_operand added to
//     signed codes, to be taken out again by the sums of the row
//   }
// and kPanelTokens, a power of two: the rows of x that a panel is unpacked for at once.

template <int kType>
struct PanelCodes {
    static constexpr PanelFormat kFormat = panel_format(kType);
    static constexpr bool kIsLevels = kType == IQ4_NL || kType == IQ4_XS || kType == MXFP4;
    static constexpr bool kIsSigned = kType == Q8_0 || kIsLevels;
    static constexpr int kOffset = kIsSigned ? Lanes::kSignedOffset : kFormat.offset;
    // In magnitude, where they are signed.
    static constexpr int kLargest = kType == MXFP4  ? 12
                                    : kIsLevels     ? 127
                                    : kType == Q8_0 ? 128
                                                    : (1 << kFormat.code_bits) - 1;

    using Codes = Lanes::Codes;

    // The eight vectors of a group, ready for dot.
    static void unpack(const uint8_t* p, Codes* v) {
        if constexpr (kFormat.code_bits == 8) {
            for (int i = 0; i < 8; ++i) v[i] = Lanes::as_operand(Lanes::load(p + 64 * i));
        } else if constexpr (kFormat.code_bits == 2 || kFormat.code_bits == 3) {
            unpack_pairs<0>(p, v);
            if constexpr (kFormat.code_bits == 3) add_bits<2>(Lanes::load(p + 128), v);
        } else {
            for (int i = 0; i < 4; ++i) {
                const Codes line = Lanes::load(p + 64 * i);
                v[i] = Lanes::template field<0>(line, 15);
                v[i + 4] = Lanes::template field<-4>(line, 15);
            }
            if constexpr (kFormat.code_bits == 5) add_bits<4>(Lanes::load(p + 256), v);
            if constexpr (kFormat.code_bits == 6) add_pairs<4>(p + 256, v);
            if constexpr (kIsLevels)
                for (int i = 0; i < 8; ++i)
                    v[i] = Lanes::as_operand(Lanes::lookup(kType == MXFP4 ? kFP4Levels : kIQ4Levels, v[i]));
        }
    }

  private:
    template <int kTo>
    static void unpack_pairs(const uint8_t* p, Codes* v) {
        for (int half = 0; half < 2; ++half) {
            const Codes line = Lanes::load(p + 64 * half);
            v[4 * half] = Lanes::template field<kTo>(line, 3 << kTo);
            v[4 * half + 1] = Lanes::template field<kTo - 2>(line, 3 << kTo);
            v[4 * half + 2] = Lanes::template field<kTo - 4>(line, 3 << kTo);
            v[4 * half + 3] = Lanes::template field<kTo - 6>(line, 3 << kTo);
        }
    }

    template <int kTo>
    static void add_pairs(const uint8_t* p, Codes* v) {
        Codes upper[8];
        unpack_pairs<kTo>(p, upper);
        for (int i = 0; i < 8; ++i) v[i] = Lanes::merge(v[i], upper[i]);
    }

    template <int kTo>
    static void add_bits(Codes line, Codes* v) {
        constexpr int kMask = 1 << kTo;
        v[0] = Lanes::merge(v[0], Lanes::template field<kTo>(line, kMask));
        v[1] = Lanes::merge(v[1], Lanes::template field<kTo - 1>(line, kMask));
        v[2] = Lanes::merge(v[2], Lanes::template field<kTo - 2>(line, kMask));
        v[3] = Lanes::merge(v[3], Lanes::template field<kTo - 3>(line, kMask));
        v[4] = Lanes::merge(v[4], Lanes::template field<kTo - 4>(line, kMask));
        v[5] = Lanes::merge(v[5], Lanes::template field<kTo - 5>(line, kMask));
        v[6] = Lanes::merge(v[6], Lanes::template field<kTo - 6>(line, kMask));
        v[7] = Lanes::merge(v[7], Lanes::template field<kTo - 7>(line, kMask));
    }
};

// The scales of 16 rows: value = scale * code - min, min being 0 where codes have neither min nor offset.
template <int kType>
struct PanelScales {
    static constexpr PanelFormat kFormat = panel_format(kType);
    static constexpr bool kHasSuperBlocks = block_values(kType) == 256;
    static constexpr int kHeader = kFormat.has_mins ? 64 : 32;
    static constexpr bool kHasMin = kFormat.has_mins || PanelCodes<kType>::kOffset != 0;

    using Floats = Lanes::Floats;

    explicit PanelScales(const uint8_t* block) : block_(block) {
        if constexpr (kType == MXFP4)
            d_ = Lanes::exponents(block);
        else
            d_ = Lanes::halves(block);
        if constexpr (kFormat.has_mins) m_ = Lanes::halves(block + 32);
    }

    Floats scale(int part) const {
        if constexpr (!kHasSuperBlocks) return d_;
        if constexpr (kType == Q2_K)
            return Lanes::multiply(d_, Lanes::low_nibbles(block_ + kHeader + 16 * part));
        if constexpr (kType == Q4_K || kType == Q5_K)
            return Lanes::multiply(d_, Lanes::unsigned_bytes(block_ + kHeader + 32 * part));
        return Lanes::multiply(d_, Lanes::signed_bytes(block_ + kHeader + 16 * part));
    }

    // What the sum of a part's integers is multiplied with and added: -min, or -offset * scale.
    Floats of_sum(int part, Floats scale) const {
        if constexpr (kType == Q4_1 || kType == Q5_1) return m_;
        const Floats minus = Lanes::broadcast(-1.0f);
        if constexpr (kType == Q2_K)
            return Lanes::multiply(Lanes::multiply(m_, minus),
                                   Lanes::high_nibbles(block_ + kHeader + 16 * part));
        if constexpr (kType == Q4_K || kType == Q5_K)
            return Lanes::multiply(Lanes::multiply(m_, minus),
                                   Lanes::unsigned_bytes(block_ + kHeader + 32 * part + 16));
        return Lanes::multiply(scale, Lanes::broadcast(-PanelCodes<kType>::kOffset));
    }

  private:
    const uint8_t* block_;
    Floats d_, m_;
};

// Bytes between what is read and what is asked for ahead, into the first cache and into the second.
constexpr int64_t kNear = 4096, kFar = 16384;

inline __attribute__((always_inline)) void prefetch_bytes(const uint8_t* near, const uint8_t* far,
                                                          int64_t num_bytes) {
    for (int64_t line = 0; line < num_bytes; line += kCacheLine) {
        __builtin_prefetch(near + line, 0, 3);
        __builtin_prefetch(far + line, 0, 2);
    }
}

// One group of 32 values: adds to the totals of T rows. x: where the group of each row begins, minus 2 * k.
template <int kType, int T>
inline __attribute__((always_inline)) void add_group(const PanelScales<kType>& block, int group,
                                                     const uint8_t* codes, const uint8_t* const* rows,
                                                     int64_t k, int64_t sums, Lanes::Floats* totals) {
    constexpr int kParts = 32 / panel_format(kType).part_values, kVectors = 8 / kParts;
    Lanes::Codes vectors[8];
    PanelCodes<kType>::unpack(codes, vectors);
    const uint8_t* x[T];
    for (int t = 0; t < T; ++t) x[t] = rows[t] + 2 * k;
    for (int part = 0; part < kParts; ++part) {
        const Lanes::Floats scale = block.scale(kParts * group + part);
        Lanes::Floats products[T];
        Lanes::template products<PanelCodes<kType>::kIsSigned, PanelCodes<kType>::kLargest, kVectors, T>(
            vectors + kVectors * part, x, 4 * kVectors * part, products);
        for (int t = 0; t < T; ++t) totals[t] = Lanes::fma(products[t], scale, totals[t]);
        if constexpr (PanelScales<kType>::kHasMin) {
            const Lanes::Floats of_sum = block.of_sum(kParts * group + part, scale);
            for (int t = 0; t < T; ++t) {
                const float sum = load_as<float>(rows[t] + sums + 4 * (k / 32 * kParts + part));
                totals[t] = Lanes::fma(of_sum, Lanes::broadcast(sum), totals[t]);
            }
        }
    }
}

// One panel with T rows of x. results[t] gets the panel's 16 results.
template <int kType, int T>
void panel_tile(const uint8_t* panel, const QuantizedRows& x, const int32_t* row_ids, const Ahead& ahead,
                float (*results)[16]) {
    constexpr int kGroups = block_values(kType) / 32;
    constexpr int64_t kScaleBytes = panel_format(kType).scale_bytes, kGroupBytes = group_bytes(kType);
    const int64_t sums = panel_format(kType).part_values == 32 ? x.sums_32() : x.sums_16();
    const uint8_t* scales = panel;
    const uint8_t* codes = panel + panel_scales_bytes(kType, x.length);
    const uint8_t* rows[T];
    Lanes::Floats totals[T];
    for (int t = 0; t < T; ++t) {
        rows[t] = x.row(row_ids[t]);
        totals[t] = Lanes::no_floats();
    }
    for (int64_t k = 0; k < x.length; scales += kScaleBytes) {
        const PanelScales<kType> block(scales);
        // Scales and codes are asked for as one stream, in the order of memory.
        const uint8_t *near = ahead.at(panel + kNear), *far = ahead.at(panel + kFar);
        prefetch_bytes(near, far, kScaleBytes);
        for (int group = 0; group < kGroups; ++group, k += 32, codes += kGroupBytes) {
            prefetch_bytes(near + kScaleBytes + group * kGroupBytes, far + kScaleBytes + group * kGroupBytes,
                           kGroupBytes);
            add_group<kType, T>(block, group, codes, rows, k, sums, totals);
        }
        panel += kScaleBytes + kGroups * kGroupBytes;
    }
    for (int t = 0; t < T; ++t) {
        const float scale = load_as<float>(rows[t] + x.scale());
        Lanes::store(results[t], Lanes::multiply(totals[t], Lanes::broadcast(scale)));
    }
}

// The rows that are left go through smaller tiles.
template <int kType, int T>
void panel_tiles(const PanelProduct& p, int64_t t) {
    for (; t + T <= p.num_tokens; t += T) {
        alignas(64) float results[T][16];
        panel_tile<kType, T>(p.panel, *p.x, p.row_ids + t, p.ahead, results);
        for (int i = 0; i < T; ++i)
            memcpy(p.outputs[t + i] + p.first_row, results[i],
                   static_cast<size_t>(p.num_rows) * sizeof(float));
    }
    if constexpr (T > 1) panel_tiles<kType, (T > 4 ? 4 : T / 2)>(p, t);
}

template <int kType>
void multiply_panel(const PanelProduct& product) {
    panel_tiles<kType, kPanelTokens>(product, 0);
}

[[maybe_unused]] void fill_multiply_panel(MultiplyPanel* table) {
    table[Q4_0] = multiply_panel<Q4_0>;
    table[Q4_1] = multiply_panel<Q4_1>;
    table[Q5_0] = multiply_panel<Q5_0>;
    table[Q5_1] = multiply_panel<Q5_1>;
    table[Q8_0] = multiply_panel<Q8_0>;
    table[Q2_K] = multiply_panel<Q2_K>;
    table[Q3_K] = multiply_panel<Q3_K>;
    table[Q4_K] = multiply_panel<Q4_K>;
    table[Q5_K] = multiply_panel<Q5_K>;
    table[Q6_K] = multiply_panel<Q6_K>;
    table[IQ4_NL] = multiply_panel<IQ4_NL>;
    table[IQ4_XS] = multiply_panel<IQ4_XS>;
    table[MXFP4] = multiply_panel<MXFP4>;
}
