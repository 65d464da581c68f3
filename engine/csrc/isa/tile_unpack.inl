// Panels to tiles of bfloat16: 32 values of 16 rows, in the order that TileRows (tiles.h) has. Included after
// panel_kernels.inl, whose codes and scales it uses.
//
// A value is code * scale - min. A code in the low bits of a 16-bit lane is, read as a float16, the code
// times 2^-24 (a subnormal number, which these instructions compute with at full speed), so one
// multiplication and addition gives the value in float16, rounded once. Its upper bits, moved down by three,
// are a bfloat16 2^112 times smaller: sign, five bits of exponent, seven of mantissa. That cuts off what it
// does not keep, always toward zero; scales and mins are enlarged by what is lost on average.

// By how much the numbers are smaller than they were: 2^112 by the move, and see RowScaling.
constexpr int kMovedExponent = 112;

// What products want: 2^-8 times the mean of m / m^2 over mantissas m that are evenly distributed on the
// scale of logarithms.
constexpr float kCutOff = 1.0026f;

// float16 has few exponents: each row of a panel is scaled so that its largest scale, times 2^24 for the
// codes, is near 2^14.
struct RowScaling {
    __m512 of_scales, of_mins, of_results;
};

__m512 power_of_two(__m512 exponents) { return _mm512_scalef_ps(_mm512_set1_ps(1.0f), exponents); }

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

template <int kType>
RowScaling row_scaling(const uint8_t* panel, int64_t length) {
    constexpr PanelFormat kFormat = panel_format(kType);
    __m512 largest = _mm512_set1_ps(1e-30f);
    for (int64_t block = 0; block < length / block_values(kType); ++block) {
        const uint8_t* scales = panel + block * kFormat.scale_bytes;
        const __m512 d = kType == MXFP4 ? Lanes::exponents(scales) : Lanes::halves(scales);
        const __m512 scale = _mm512_mul_ps(_mm512_abs_ps(d), _mm512_set1_ps(largest_part<kType>()));
        largest = _mm512_max_ps(largest, scale);
        if constexpr (kFormat.has_mins) {
            // A min may be 2^10 times as large as the largest scale: it has no 2^24 for codes.
            const __m512 m = _mm512_abs_ps(Lanes::halves(scales + 32));
            const __m512 min = _mm512_mul_ps(m, _mm512_set1_ps(largest_part<kType>() / 1024));
            largest = _mm512_max_ps(largest, min);
        }
    }
    const __m512 exponents = _mm512_getexp_ps(largest);
    const __m512 kept = _mm512_set1_ps(kCutOff);
    const __m512 to_scales = power_of_two(_mm512_sub_ps(_mm512_set1_ps(14), exponents));
    const __m512 to_mins = power_of_two(_mm512_sub_ps(_mm512_set1_ps(14 - 24), exponents));
    const __m512 back =
        _mm512_add_ps(exponents, _mm512_set1_ps(24 - 14 + kMovedExponent - kTileScaleExponent));
    return {_mm512_mul_ps(to_scales, kept), _mm512_mul_ps(to_mins, kept), power_of_two(back)};
}

// 16 floats as float16, each in both halves of its lane.
__m512h twice(__m512 x) {
    const __m512i halves = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    return _mm512_castsi512_ph(_mm512_or_si512(halves, _mm512_slli_epi32(halves, 16)));
}

// A tile row: codes in 16-bit lanes times scale plus offset.
void store_tile_row_of(__m512i codes, __m512h scale, __m512h offset, uint8_t* to) {
    const __m512i value = _mm512_castph_si512(_mm512_fmadd_ph(_mm512_castsi512_ph(codes), scale, offset));
    const __m512i moved = _mm512_srai_epi16(value, 3);
    _mm512_store_si512(to, _mm512_and_si512(moved, _mm512_set1_epi16(static_cast<int16_t>(0x8fff))));
}

// What unpacks a panel is asked for the codes of 32 values, and these for one quarter of the tile after the
// other: four tile rows each.

// Nibbles stay where they are where that is below the tenth bit: there they count 16 times.
struct NibbleCodes {
    const uint8_t* lines;
    __m512h scale, sixteenth, offset;

    template <int kQuarter>
    [[gnu::always_inline]] void unpack(uint8_t* tile) const {
        const __m512i low = _mm512_set1_epi16(0x000f), high = _mm512_set1_epi16(0x00f0);
        const __m512i line = _mm512_loadu_si512(lines + 64 * kQuarter), upper = _mm512_srli_epi16(line, 8);
        uint8_t* first = tile + 128 * kQuarter;
        uint8_t* second = tile + 128 * (kQuarter + 4);
        store_tile_row_of(_mm512_and_si512(line, low), scale, offset, first);
        store_tile_row_of(_mm512_and_si512(upper, low), scale, offset, first + 64);
        store_tile_row_of(_mm512_and_si512(line, high), sixteenth, offset, second);
        store_tile_row_of(_mm512_and_si512(upper, high), sixteenth, offset, second + 64);
    }
};

template <int kParts>
struct ByteCodes {
    Lanes::Codes vectors[8];
    __m512h scales[kParts], offsets[kParts];

    template <int kQuarter>
    [[gnu::always_inline]] void unpack(uint8_t* tile) const {
        constexpr int kPart = 2 * kQuarter * kParts / 8;
        const __m512i low = _mm512_set1_epi16(0x00ff);
        const __m512h scale = scales[kPart], offset = offsets[kPart];
        const Lanes::Codes a = vectors[2 * kQuarter], b = vectors[2 * kQuarter + 1];
        tile += 256 * kQuarter;
        store_tile_row_of(_mm512_and_si512(a, low), scale, offset, tile);
        store_tile_row_of(_mm512_srli_epi16(a, 8), scale, offset, tile + 64);
        store_tile_row_of(_mm512_and_si512(b, low), scale, offset, tile + 128);
        store_tile_row_of(_mm512_srli_epi16(b, 8), scale, offset, tile + 192);
    }
};

void prefetch_ahead(const uint8_t* p, int64_t num_bytes) {
    for (int64_t line = 0; line < num_bytes; line += kCacheLine) {
        __builtin_prefetch(p + kNear + line, 0, 3);
        __builtin_prefetch(p + kFar + line, 0, 2);
    }
}

template <int kType>
class PanelTiles {
    static constexpr PanelFormat kFormat = panel_format(kType);
    static constexpr int kGroups = block_values(kType) / 32, kParts = 32 / kFormat.part_values;
    static constexpr bool kIsNibbles = kFormat.code_bits == 4 && !PanelCodes<kType>::kIsLevels;

  public:
    void start(const uint8_t* panel, int64_t length) {
        scales_ = panel;
        codes_ = panel + panel_scales_bytes(kType, length);
        scaling_ = row_scaling<kType>(panel, length);
    }

    __m512 result_scale() const { return scaling_.of_results; }

    [[gnu::always_inline]] auto codes(int64_t group) const {
        const uint8_t* lines = codes_ + group * group_bytes(kType);
        prefetch_ahead(lines, group_bytes(kType));
        const PanelScales<kType> block(scales_ + group / kGroups * kFormat.scale_bytes);
        const int first = static_cast<int>(group % kGroups) * kParts;
        if constexpr (kIsNibbles) {
            const auto [scale, offset] = scale_and_offset(block, first);
            return NibbleCodes{lines, scale,
                               _mm512_mul_ph(scale, _mm512_set1_ph(static_cast<_Float16>(0.0625f))), offset};
        } else {
            ByteCodes<kParts> bytes;
            PanelCodes<kType>::unpack(lines, bytes.vectors);
            for (int part = 0; part < kParts; ++part) {
                const auto [scale, offset] = scale_and_offset(block, first + part);
                bytes.scales[part] = scale;
                bytes.offsets[part] = offset;
            }
            return bytes;
        }
    }

  private:
    struct ScaleAndOffset {
        __m512h scale, offset;
    };

    [[gnu::always_inline]] ScaleAndOffset scale_and_offset(const PanelScales<kType>& block, int part) const {
        const __m512 scale = block.scale(part);
        __m512h offset = _mm512_setzero_ph();
        if constexpr (PanelScales<kType>::kHasMin)
            offset = twice(_mm512_mul_ps(block.of_sum(part, scale), scaling_.of_mins));
        return {twice(_mm512_mul_ps(scale, scaling_.of_scales)), offset};
    }

    const uint8_t* scales_;
    const uint8_t* codes_;
    RowScaling scaling_;
};

// Two vectors of 32 bfloat16 as tile rows: 16 columns of values 0 and 1, and of 2 and 3, of a quad.
void store_interleaved(__m512i values_01, __m512i values_23, uint8_t* to) {
    const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39,
                                           7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    _mm512_store_si512(to, _mm512_permutex2var_epi16(values_01, first, values_23));
    _mm512_store_si512(to + 64, _mm512_permutex2var_epi16(values_01, second, values_23));
}

__m512i to_bfloat16(__m512 low, __m512 high) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

__m512 without_tile_scale() { return _mm512_set1_ps(0x1p-90f); }

// Panels of F16 and BF16: value k of 16 rows side by side.
template <int kType>
struct HalfCodes {
    const uint8_t* halves;

    template <int kQuarter>
    [[gnu::always_inline]] void unpack(uint8_t* tile) const {
        const uint8_t* from = halves + 256 * kQuarter;
        tile += 256 * kQuarter;
        store_interleaved(two_values(from), two_values(from + 64), tile);
        store_interleaved(two_values(from + 128), two_values(from + 192), tile + 128);
    }

    static __m512i two_values(const uint8_t* p) {
        if constexpr (kType == BF16) return _mm512_loadu_si512(p);
        return to_bfloat16(_mm512_cvtph_ps(load32(p)), _mm512_cvtph_ps(load32(p + 32)));
    }
};

template <int kType>
class HalfTiles {
  public:
    void start(const uint8_t* panel, int64_t) { panel_ = panel; }
    __m512 result_scale() const { return without_tile_scale(); }

    HalfCodes<kType> codes(int64_t group) const {
        const uint8_t* halves = panel_ + group * kTileBytes;
        prefetch_ahead(halves, kTileBytes);
        return {halves};
    }

  private:
    const uint8_t* panel_;
};

// 16 rows of floats.
struct FloatCodes {
    alignas(64) uint16_t values[16][32];

    // Lane n of a tile row: values k and k + 2 of row n.
    template <int kQuarter>
    void unpack(uint8_t* tile) const {
        for (int64_t row = 4 * kQuarter; row < 4 * kQuarter + 4; ++row) {
            const int64_t k = row / 2 * 4 + row % 2;
            for (int64_t n = 0; n < 16; ++n) {
                memcpy(tile + kTileStride * row + 4 * n, &values[n][k], 2);
                memcpy(tile + kTileStride * row + 4 * n + 2, &values[n][k + 2], 2);
            }
        }
    }
};

class FloatTiles {
  public:
    void start(const uint8_t* panel, int64_t length) {
        rows_ = reinterpret_cast<const float*>(panel);
        length_ = length;
    }
    __m512 result_scale() const { return without_tile_scale(); }

    FloatCodes codes(int64_t group) const {
        FloatCodes codes;
        for (int64_t row = 0; row < 16; ++row) {
            const float* x = rows_ + row * length_ + group * kTileValues;
            _mm512_store_si512(codes.values[row], to_bfloat16(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)));
        }
        return codes;
    }

  private:
    const float* rows_;
    int64_t length_;
};
