// Panels to tiles of 16-bit integers in two planes of bytes. Included after panel_kernels.inl, whose codes
// and scales it uses.
//
// A weight becomes the integer nearest to weight * F, F being of its row: integer = 256 * a + b - 128, both a
// byte, a signed and b not. For 64 values a panel gives two tiles, of a and of b: row i of a tile holds, side
// by side for 16 rows of the panel, the four values 4i..4i + 3, as a vector of the panel's codes does.
//
// A code of n bits, moved to the top of 16 bits and made signed, times a scale S of 16 bits: the rounded
// upper half of twice the product is (code - 2^(n-1)) * S / 2^(n-1).

constexpr float kLargestWeight = 32600;  // 128 less than what 16 bits hold, and what rounding twice may add

// The scales of a panel's rows: F, and its inverse.
struct RowScales {
    __m512 to_integers, of_results;

    explicit RowScales(__m512 largest) {
        of_results =
            _mm512_max_ps(_mm512_mul_ps(largest, _mm512_set1_ps(1 / kLargestWeight)), _mm512_set1_ps(1e-30f));
        to_integers = _mm512_div_ps(_mm512_set1_ps(1), of_results);
    }
    RowScales() = default;
};

// The largest scale byte of a block; 1 where blocks have but one scale.
template <int kType>
constexpr float largest_part() {
    switch (kType) {
        case Q2_K:
            return 15;
        case Q3_K:
        case IQ4_XS:
            return 32;
        case Q4_K:
        case Q5_K:
            return 63;
        case Q6_K:
            return 128;
        default:
            return 1;
    }
}

// Bits of a code as the products have it. MXFP4's levels, at most 12, leave three of eight unused.
template <int kType>
constexpr int bits_of_codes() {
    if (kType == MXFP4) return 5;
    return PanelCodes<kType>::kIsSigned ? 8 : panel_format(kType).code_bits;
}

// What no weight of a panel's row is larger than.
template <int kType>
__m512 largest_weights(const uint8_t* panel, int64_t length) {
    constexpr PanelFormat kFormat = panel_format(kType);
    constexpr int kBits = bits_of_codes<kType>();
    constexpr float kMostCodes = kFormat.has_mins ? (1 << kBits) - 1 : 1 << (kBits - 1);
    __m512 largest = _mm512_setzero_ps();
    for (int64_t block = 0; block < length / block_values(kType); ++block) {
        const uint8_t* scales = panel + block * kFormat.scale_bytes;
        const __m512 d = kType == MXFP4 ? Lanes::exponents(scales) : Lanes::halves(scales);
        __m512 bound = _mm512_mul_ps(_mm512_abs_ps(d), _mm512_set1_ps(largest_part<kType>() * kMostCodes));
        if constexpr (kFormat.has_mins) {
            // d * code and the min mostly have different signs. Blocks of 256 have their mins negated.
            const __m512 m = Lanes::halves(scales + 32);
            const __m512 min = _mm512_mul_ps(_mm512_abs_ps(m), _mm512_set1_ps(largest_part<kType>()));
            const __mmask16 differ =
                _mm512_movepi32_mask(_mm512_xor_si512(_mm512_castps_si512(d), _mm512_castps_si512(m)));
            const __mmask16 add = block_values(kType) == 256 ? differ : static_cast<__mmask16>(~differ);
            bound = _mm512_mask_add_ps(_mm512_max_ps(bound, min), add, bound, min);
        }
        largest = _mm512_max_ps(largest, bound);
    }
    return largest;
}

// 16 floats rounded to integers, each in both halves of its lane.
__m512i in_both_halves(__m512 x) {
    const __m512i pairs = _mm512_set1_epi32(0x01000100);
    const __m512i lanes = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    return _mm512_shuffle_epi8(_mm512_cvtps_epi32(x), _mm512_add_epi8(pairs, lanes));
}

constexpr int64_t kLowPlane = kTileBytes;

// Low bytes moved up, zeros below. As a shift by 8, but shifts are for one port only, which multiplies too.
__m512i moved_up(__m512i x) {
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_set_epi8(14, -1, 12, -1, 10, -1, 8, -1, 6, -1, 4, -1, 2, -1, 0, -1));
    return _mm512_shuffle_epi8(x, order);
}

// The even and the odd bytes' weights, raised by 128, to a row of each plane.
[[gnu::always_inline]] inline void store_planes(__m512i even, __m512i odd, uint8_t* to) {
    constexpr __mmask64 kOdd = 0xaaaaaaaaaaaaaaaa;
    _mm512_store_si512(to, _mm512_mask_mov_epi8(_mm512_srli_epi16(even, 8), kOdd, odd));
    _mm512_store_si512(to + kLowPlane, _mm512_mask_mov_epi8(even, kOdd, moved_up(odd)));
}

// What codes of 16 rows are multiplied with and raised by.
struct IntegerScale {
    __m512i scale, offset;

    [[gnu::always_inline]] __m512i weights(__m512i codes) const {
        return _mm512_add_epi16(_mm512_mulhrs_epi16(codes, scale), offset);
    }
};

// What unpacks a panel is asked for the codes of 32 values, and these for one eighth of them after the other:
// one tile row, in whichever order.

struct IntegerNibbles {
    const uint8_t* lines;
    IntegerScale scale;

    // Row i and row i + 4 come from the same line.
    template <int kEighth>
    [[gnu::always_inline]] void unpack(uint8_t* tile) const {
        constexpr int kLine = kEighth / 2;
        const __m512i signs = _mm512_set1_epi8(static_cast<char>(0x88));
        const __m512i top = _mm512_set1_epi16(static_cast<int16_t>(0xf000));
        const __m512i line = _mm512_xor_si512(_mm512_loadu_si512(lines + 64 * kLine), signs);
        if constexpr (kEighth % 2 == 0) {
            const __m512i raised = _mm512_slli_epi16(line, 4);
            store_planes(scale.weights(moved_up(raised)), scale.weights(_mm512_and_si512(raised, top)),
                         tile + kTileStride * kLine);
        } else {
            store_planes(scale.weights(_mm512_and_si512(moved_up(line), top)),
                         scale.weights(_mm512_and_si512(line, top)), tile + kTileStride * (kLine + 4));
        }
    }
};

template <int kBits, int kParts>
struct IntegerBytes {
    Lanes::Codes vectors[8];
    IntegerScale scales[kParts];

    template <int kVector>
    [[gnu::always_inline]] void unpack(uint8_t* tile) const {
        const IntegerScale& scale = scales[kVector * kParts / 8];
        const __m512i upper = _mm512_set1_epi16(static_cast<int16_t>(0xff00));
        const __m512i even = _mm512_slli_epi16(vectors[kVector], 16 - kBits);
        const __m512i odd = _mm512_slli_epi16(_mm512_and_si512(vectors[kVector], upper), 8 - kBits);
        store_planes(scale.weights(even), scale.weights(odd), tile + kTileStride * kVector);
    }
};

void prefetch_ahead(const uint8_t* p, int64_t num_bytes) {
    for (int64_t line = 0; line < num_bytes; line += kCacheLine) {
        __builtin_prefetch(p + kNear + line, 0, 3);
        __builtin_prefetch(p + kFar + line, 0, 2);
    }
}

template <int kType>
class PanelIntegers {
    static constexpr PanelFormat kFormat = panel_format(kType);
    static constexpr int kGroups = block_values(kType) / 32, kParts = 32 / kFormat.part_values;
    static constexpr bool kIsNibbles = kFormat.code_bits == 4 && !PanelCodes<kType>::kIsLevels;
    static constexpr int kBits = bits_of_codes<kType>();
    static constexpr float kHalf = 1 << (kBits - 1);

  public:
    void start(const uint8_t* panel, int64_t length) {
        scales_ = panel;
        codes_ = panel + panel_scales_bytes(kType, length);
        rows_ = RowScales(largest_weights<kType>(panel, length));
        halves_ = _mm512_mul_ps(rows_.to_integers, _mm512_set1_ps(kHalf));
    }

    __m512 result_scale() const { return rows_.of_results; }

    [[gnu::always_inline]] auto codes(int64_t group) const {
        const uint8_t* lines = codes_ + group * group_bytes(kType);
        prefetch_ahead(lines, group_bytes(kType));
        const PanelScales<kType> block(scales_ + group / kGroups * kFormat.scale_bytes);
        const int first = static_cast<int>(group % kGroups) * kParts;
        if constexpr (kIsNibbles) {
            return IntegerNibbles{lines, integer_scale(block, first)};
        } else {
            IntegerBytes<kBits, kParts> bytes;
            PanelCodes<kType>::unpack(lines, bytes.vectors);
            // Signed, by what PanelCodes raised them, or by half of what n bits hold.
            constexpr char kSign = PanelCodes<kType>::kIsSigned ? static_cast<char>(0x80) : 1 << (kBits - 1);
            for (auto& vector : bytes.vectors) vector = _mm512_xor_si512(vector, _mm512_set1_epi8(kSign));
            for (int part = 0; part < kParts; ++part) bytes.scales[part] = integer_scale(block, first + part);
            return bytes;
        }
    }

  private:
    [[gnu::always_inline]] IntegerScale integer_scale(const PanelScales<kType>& block, int part) const {
        const __m512 scale = block.scale(part), halves = _mm512_mul_ps(scale, halves_);
        __m512i offset = _mm512_set1_epi16(128);
        if constexpr (kFormat.has_mins) {
            const __m512 raised = _mm512_add_ps(halves, _mm512_set1_ps(128));
            offset = in_both_halves(_mm512_fmadd_ps(block.of_sum(part, scale), rows_.to_integers, raised));
        }
        return {in_both_halves(halves), offset};
    }

    const uint8_t* scales_;
    const uint8_t* codes_;
    RowScales rows_;
    __m512 halves_;  // of the codes' range
};

// Four vectors of 16 rows' integers, of the values of a quad, to a row of each plane.
[[gnu::always_inline]] inline void store_quad(const __m512* quad, __m512 scales, uint8_t* to) {
    __m512i x[4];
    for (int j = 0; j < 4; ++j)
        x[j] = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(quad[j], scales)), _mm512_set1_epi32(128));
    const __m512i low_half = _mm512_set1_epi32(0xffff);
    const __m512i even = _mm512_ternarylogic_epi32(low_half, x[0], _mm512_slli_epi32(x[2], 16), 0xca);
    const __m512i odd = _mm512_ternarylogic_epi32(low_half, x[1], _mm512_slli_epi32(x[3], 16), 0xca);
    store_planes(even, odd, to);
}

// Panels of F16 and BF16: value k of 16 rows side by side.
template <int kType>
struct HalfIntegers {
    const uint8_t* halves;
    __m512 scales;

    template <int kRow>
    [[gnu::always_inline]] void unpack(uint8_t* tile) const {
        __m512 quad[4];
        for (int j = 0; j < 4; ++j) quad[j] = value_of(halves + 32 * (4 * kRow + j));
        store_quad(quad, scales, tile + kTileStride * kRow);
    }

    static __m512 value_of(const uint8_t* p) {
        if constexpr (kType == F16) return _mm512_cvtph_ps(load32(p));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16));
    }
};

template <int kType>
class HalfPanelIntegers {
  public:
    void start(const uint8_t* panel, int64_t length) {
        panel_ = panel;
        __m512 largest = _mm512_setzero_ps();
        for (int64_t k = 0; k < length; ++k)
            largest = _mm512_max_ps(largest, _mm512_abs_ps(HalfIntegers<kType>::value_of(panel + 32 * k)));
        rows_ = RowScales(largest);
    }
    __m512 result_scale() const { return rows_.of_results; }

    HalfIntegers<kType> codes(int64_t group) const {
        const uint8_t* halves = panel_ + group * kTileBytes;
        prefetch_ahead(halves, kTileBytes);
        return {halves, rows_.to_integers};
    }

  private:
    const uint8_t* panel_;
    RowScales rows_;
};

// 32 values of 16 rows of floats, `length` apart.
struct FloatIntegers {
    const float* rows;
    int64_t length;
    __m512 scales;

    template <int kRow>
    void unpack(uint8_t* tile) const {
        const __m512i of_rows =
            _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                               _mm512_set1_epi32(static_cast<int>(length)));
        __m512 quad[4];
        for (int j = 0; j < 4; ++j) quad[j] = _mm512_i32gather_ps(of_rows, rows + 4 * kRow + j, 4);
        store_quad(quad, scales, tile + kTileStride * kRow);
    }
};

class FloatPanelIntegers {
  public:
    void start(const uint8_t* panel, int64_t length) {
        panel_ = reinterpret_cast<const float*>(panel);
        length_ = length;
        alignas(64) float largest[16];
        for (int64_t row = 0; row < 16; ++row) {
            __m512 of_row = _mm512_setzero_ps();
            for (int64_t k = 0; k < length; k += 16)
                of_row = _mm512_max_ps(of_row, _mm512_abs_ps(_mm512_loadu_ps(panel_ + row * length + k)));
            largest[row] = _mm512_reduce_max_ps(of_row);
        }
        rows_ = RowScales(_mm512_load_ps(largest));
    }
    __m512 result_scale() const { return rows_.of_results; }
    FloatIntegers codes(int64_t group) const {
        return {panel_ + group * kTileValues, length_, rows_.to_integers};
    }

  private:
    const float* panel_;
    int64_t length_;
    RowScales rows_;
};
