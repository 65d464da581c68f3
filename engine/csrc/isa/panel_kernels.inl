// Products of panels (panels.h) with quantized rows (quantized_rows.h), in terms of one set of lanes. An ISA
// file defines, before it includes this:
//   struct Lanes {
//     Codes: 64 bytes; Ints, Floats: 16 lanes
//     load(p), load_line(p); field<shift>(codes, mask): bytes moved up by shift (down where negative),
//     masked; merge(a, b): or; lookup(levels, codes): 16 levels of a byte; as_operand(codes): signed codes
//     for dot; dot<signed>(sum, codes, x): sum[n] += the four codes of lane n times the four bytes at x;
//     no_ints(); add(a, b); combine(high, low): 128 * high + low as floats; halves(p), unsigned_bytes(p),
//     signed_bytes(p), low_nibbles(p), high_nibbles(p), exponents(p): 16 as floats; no_floats(),
//     broadcast(x), multiply(a, b), fma(a, b, sum), store(p, v) kSignedOffset: what as_operand added to
//     signed codes, to be taken out again by the sums of the row
//   }

template <int kType>
struct PanelCodes {
    static constexpr PanelFormat kFormat = panel_format(kType);
    static constexpr bool kIsLevels = kType == IQ4_NL || kType == IQ4_XS || kType == MXFP4;
    static constexpr bool kIsSigned = kType == Q8_0 || kIsLevels;
    static constexpr int kOffset = kIsSigned ? Lanes::kSignedOffset : kFormat.offset;

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

// Bytes between what is read and what is asked for ahead.
constexpr int64_t kNear = 4096, kFar = 16384;

// One panel with T rows of x. outputs[t] gets the panel's 16 results.
template <int kType, int T>
void panel_tile(const uint8_t* panel, const QuantizedRows& x, const int32_t* row_ids, float (*outputs)[16]) {
    constexpr int kBlock = block_values(kType), kGroups = kBlock / 32;
    constexpr int kParts = 32 / panel_format(kType).part_values, kVectors = 8 / kParts;
    using Scales = PanelScales<kType>;
    const uint8_t* scales = panel;
    const uint8_t* codes = panel + panel_scales_bytes(kType, x.length);
    const int8_t *high[T], *low[T];
    const float* sums[T];
    Lanes::Floats totals[T];
    for (int t = 0; t < T; ++t) {
        high[t] = x.high + row_ids[t] * x.length;
        low[t] = x.low + row_ids[t] * x.length;
        sums[t] =
            kParts == 1 ? x.sums_32 + row_ids[t] * (x.length / 32) : x.sums_16 + row_ids[t] * (x.length / 16);
        totals[t] = Lanes::no_floats();
    }
    for (int64_t k = 0; k < x.length; scales += panel_format(kType).scale_bytes) {
        const Scales block(scales);
        for (int group = 0; group < kGroups; ++group, k += 32, codes += group_bytes(kType)) {
            for (int64_t line = 0; line < group_bytes(kType); line += kCacheLine) {
                __builtin_prefetch(codes + kNear + line, 0, 3);
                __builtin_prefetch(codes + kFar + line, 0, 2);
            }
            Lanes::Codes vectors[8];
            PanelCodes<kType>::unpack(codes, vectors);
            for (int part = 0; part < kParts; ++part) {
                const Lanes::Floats scale = block.scale(kParts * group + part);
                Lanes::Floats of_sum = Lanes::no_floats();
                if constexpr (Scales::kHasMin) of_sum = block.of_sum(kParts * group + part, scale);
                for (int t = 0; t < T; ++t) {
                    // Two sums each, so that a product need not wait for the one before it.
                    Lanes::Ints h[2] = {Lanes::no_ints(), Lanes::no_ints()};
                    Lanes::Ints l[2] = {Lanes::no_ints(), Lanes::no_ints()};
                    for (int i = 0; i < kVectors; ++i) {
                        const int v = kVectors * part + i;
                        h[i % 2] = Lanes::template dot<PanelCodes<kType>::kIsSigned>(h[i % 2], vectors[v],
                                                                                     high[t] + k + 4 * v);
                        l[i % 2] = Lanes::template dot<PanelCodes<kType>::kIsSigned>(l[i % 2], vectors[v],
                                                                                     low[t] + k + 4 * v);
                    }
                    const Lanes::Floats product =
                        Lanes::combine(Lanes::add(h[0], h[1]), Lanes::add(l[0], l[1]));
                    totals[t] = Lanes::fma(product, scale, totals[t]);
                    if constexpr (Scales::kHasMin)
                        totals[t] =
                            Lanes::fma(of_sum, Lanes::broadcast(sums[t][k / 32 * kParts + part]), totals[t]);
                }
            }
        }
    }
    for (int t = 0; t < T; ++t)
        Lanes::store(outputs[t], Lanes::multiply(totals[t], Lanes::broadcast(x.scales[row_ids[t]])));
}

template <int kType, int T>
void panel_tokens(const uint8_t* panel, const QuantizedRows& x, const int32_t* row_ids, float* const* outputs,
                  int64_t first_row, int64_t num_rows) {
    alignas(64) float results[T][16];
    panel_tile<kType, T>(panel, x, row_ids, results);
    for (int t = 0; t < T; ++t)
        memcpy(outputs[t] + first_row, results[t], static_cast<size_t>(num_rows) * sizeof(float));
}

template <int kType>
void multiply_panel(const uint8_t* panel, const QuantizedRows& x, const int32_t* row_ids, int64_t num_tokens,
                    float* const* outputs, int64_t first_row, int64_t num_rows) {
    int64_t t = 0;
    for (; t + kPanelTokens <= num_tokens; t += kPanelTokens)
        panel_tokens<kType, kPanelTokens>(panel, x, row_ids + t, outputs + t, first_row, num_rows);
    for (; t < num_tokens; ++t)
        panel_tokens<kType, 1>(panel, x, row_ids + t, outputs + t, first_row, num_rows);
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
