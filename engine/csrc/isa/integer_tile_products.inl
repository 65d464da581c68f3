// Products of panels in planes of bytes (integer_tile_unpack.inl) with rows in planes of bytes, in tile
// registers.
//
// x = scale * (256 * high + low), both signed bytes; a weight's integer is 256 * a + b - 128. So
//   sum of x * w = 65536 * sum(high * a) + 256 * (sum(low * a) + sum(high * b) - 128 * sum(high))
//                  + sum(low * b) - 128 * sum(low)
// The last sum is left out where high says enough: there it is smaller than what the rounding of x costs by
// chance. Rows that have a few large values need it: all others of them are in low.
//
// A block of TileRows holds for each 64 values a tile of high and one of low, 16 rows of 64 values, and then
// RowFacts. Up to three blocks are multiplied at once, or two with the last sum.

struct RowFacts {
    float scales[16];
    int32_t high_sums[16], low_sums[16];  // 128 times
    int32_t needs_low[16];                // all bits, or none
};
static_assert(sizeof(RowFacts) == kTileRowFacts);

// x has a value more than so many times its root mean square: it needs the last sum.
constexpr float kLargeValue = 12;

void store_integer_row(const float* x, const TileRows& rows, int64_t row) {
    __m512 largest = _mm512_setzero_ps(), squares = _mm512_setzero_ps(), probe = _mm512_setzero_ps();
    for (int64_t k = 0; k < rows.length; k += 16) {
        const __m512 v = _mm512_loadu_ps(x + k);
        largest = _mm512_max_ps(largest, _mm512_abs_ps(v));
        squares = _mm512_fmadd_ps(v, v, squares);
        probe = _mm512_fmadd_ps(v, _mm512_setzero_ps(), probe);
    }
    const float most = _mm512_reduce_max_ps(largest);
    const bool is_zero = !(most >= 1e-30f);
    const __m512 inverse = _mm512_set1_ps(is_zero ? 0 : 127 * 256 / most);
    uint8_t* const block = rows.block(row);
    uint8_t* to = block + row % kTileRows * kTileStride;
    __m512i highs = _mm512_setzero_si512(), lows = _mm512_setzero_si512();
    const int64_t padded = num_tile_steps(rows.length) * kTileStep;
    for (int64_t k = 0; k < padded; k += 16) {
        __m512i all = _mm512_setzero_si512();
        if (k < rows.length) all = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + k), inverse));
        const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(all, _mm512_set1_epi32(128)), 8);
        highs = _mm512_add_epi32(highs, high);
        lows = _mm512_add_epi32(lows, _mm512_sub_epi32(all, _mm512_slli_epi32(high, 8)));
        uint8_t* at = to + k / kTileStep * kTileStepBytes + k % kTileStep;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(high));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at + kTileBytes), _mm512_cvtepi32_epi8(all));
    }
    RowFacts& facts = *reinterpret_cast<RowFacts*>(block + padded / kTileStep * kTileStepBytes);
    const int64_t i = row % kTileRows;
    // No finite number where x has one that is none: then so are the results.
    facts.scales[i] = most / (127 * 256) + _mm512_reduce_add_ps(probe);
    facts.high_sums[i] = 128 * _mm512_reduce_add_epi32(highs);
    facts.low_sums[i] = 128 * _mm512_reduce_add_epi32(lows);
    const float mean_square = _mm512_reduce_add_ps(squares) / static_cast<float>(rows.length);
    facts.needs_low[i] = most * most > kLargeValue * kLargeValue * mean_square ? -1 : 0;
}

#define KTDESK_HIGH_A(sum, rows, panel) KTDESK_TILE_PRODUCT("tdpbssd", sum, rows, panel)
#define KTDESK_ANY_B(sum, rows, panel) KTDESK_TILE_PRODUCT("tdpbsud", sum, rows, panel)

// The tile instructions of one step of 64 values: a panel times B blocks. They are dealt out to eight slots,
// between which the next steps are unpacked. Sums: registers 0.. of high * a, then the middle ones, then with
// kLow those of low * b, one for each block.
template <int B, bool kLow>
struct ByteStep {
    const uint8_t* rows;  // of the first block; those of the others are block_bytes further
    int64_t block_bytes;
    const uint8_t* panel;

    template <int kSlot>
    [[gnu::always_inline]] void issue() const {
        if constexpr (B == 1) issue_1<kSlot>();
        if constexpr (B == 2 && !kLow) issue_2<kSlot>();
        if constexpr (B == 2 && kLow) issue_2_with_low<kSlot>();
        if constexpr (B == 3) issue_3<kSlot>();
    }

    void issue_all() const {
        issue<0>();
        issue<1>();
        issue<2>();
        issue<3>();
        issue<4>();
        issue<5>();
        issue<6>();
        issue<7>();
    }

  private:
    const uint8_t* high(int64_t block) const { return rows + block * block_bytes; }
    const uint8_t* low(int64_t block) const { return high(block) + kTileBytes; }
    const uint8_t* b() const { return panel + kLowPlane; }

    template <int kSlot>
    [[gnu::always_inline]] void issue_1() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(4, panel);
            KTDESK_TILE_LOAD(6, high(0));
        }
        if constexpr (kSlot == 1) KTDESK_HIGH_A(0, 6, 4);
        if constexpr (kSlot == 2) KTDESK_TILE_LOAD(7, low(0));
        if constexpr (kSlot == 3) KTDESK_HIGH_A(1, 7, 4);
        if constexpr (kSlot == 4) KTDESK_TILE_LOAD(5, b());
        if constexpr (kSlot == 5) KTDESK_ANY_B(1, 6, 5);
        if constexpr (kSlot == 6 && kLow) KTDESK_ANY_B(2, 7, 5);
    }

    template <int kSlot>
    [[gnu::always_inline]] void issue_2() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(4, panel);
            KTDESK_TILE_LOAD(6, high(0));
        }
        if constexpr (kSlot == 1) {
            KTDESK_HIGH_A(0, 6, 4);
            KTDESK_TILE_LOAD(7, high(1));
        }
        if constexpr (kSlot == 2) {
            KTDESK_HIGH_A(1, 7, 4);
            KTDESK_TILE_LOAD(5, b());
        }
        if constexpr (kSlot == 3) KTDESK_ANY_B(2, 6, 5);
        if constexpr (kSlot == 4) {
            KTDESK_ANY_B(3, 7, 5);
            KTDESK_TILE_LOAD(6, low(0));
        }
        if constexpr (kSlot == 5) {
            KTDESK_HIGH_A(2, 6, 4);
            KTDESK_TILE_LOAD(7, low(1));
        }
        if constexpr (kSlot == 6) KTDESK_HIGH_A(3, 7, 4);
    }

    template <int kSlot>
    [[gnu::always_inline]] void issue_2_with_low() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(7, panel);
            KTDESK_TILE_LOAD(6, high(0));
        }
        if constexpr (kSlot == 1) {
            KTDESK_HIGH_A(0, 6, 7);
            KTDESK_TILE_LOAD(6, low(0));
        }
        if constexpr (kSlot == 2) {
            KTDESK_HIGH_A(2, 6, 7);
            KTDESK_TILE_LOAD(6, high(1));
        }
        if constexpr (kSlot == 3) {
            KTDESK_HIGH_A(1, 6, 7);
            KTDESK_TILE_LOAD(6, low(1));
        }
        if constexpr (kSlot == 4) {
            KTDESK_HIGH_A(3, 6, 7);
            KTDESK_TILE_LOAD(7, b());
        }
        if constexpr (kSlot == 5) {
            KTDESK_ANY_B(5, 6, 7);
            KTDESK_TILE_LOAD(6, high(1));
        }
        if constexpr (kSlot == 6) {
            KTDESK_ANY_B(3, 6, 7);
            KTDESK_TILE_LOAD(6, low(0));
        }
        if constexpr (kSlot == 7) {
            KTDESK_ANY_B(4, 6, 7);
            KTDESK_TILE_LOAD(6, high(0));
            KTDESK_ANY_B(2, 6, 7);
        }
    }

    template <int kSlot>
    [[gnu::always_inline]] void issue_3() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(7, panel);
            KTDESK_TILE_LOAD(6, high(0));
        }
        if constexpr (kSlot == 1) {
            KTDESK_HIGH_A(0, 6, 7);
            KTDESK_TILE_LOAD(6, high(1));
        }
        if constexpr (kSlot == 2) {
            KTDESK_HIGH_A(1, 6, 7);
            KTDESK_TILE_LOAD(6, high(2));
        }
        if constexpr (kSlot == 3) {
            KTDESK_HIGH_A(2, 6, 7);
            KTDESK_TILE_LOAD(6, low(2));
        }
        if constexpr (kSlot == 4) {
            KTDESK_HIGH_A(5, 6, 7);
            KTDESK_TILE_LOAD(6, low(1));
        }
        if constexpr (kSlot == 5) {
            KTDESK_HIGH_A(4, 6, 7);
            KTDESK_TILE_LOAD(6, low(0));
            KTDESK_HIGH_A(3, 6, 7);
        }
        if constexpr (kSlot == 6) {
            KTDESK_TILE_LOAD(7, b());
            KTDESK_TILE_LOAD(6, high(0));
            KTDESK_ANY_B(3, 6, 7);
        }
        if constexpr (kSlot == 7) {
            KTDESK_TILE_LOAD(6, high(1));
            KTDESK_ANY_B(4, 6, 7);
            KTDESK_TILE_LOAD(6, high(2));
            KTDESK_ANY_B(5, 6, 7);
        }
    }
};

// Where the products of B blocks go.
template <int B, bool kLow>
struct ByteProducts {
    static constexpr int kSums = (kLow ? 3 : 2) * B;

    const RowFacts* facts;  // of the first block; those of the others are block_bytes further
    int64_t block_bytes;
    float* const* outputs;  // of the first row
    int64_t num_rows;
    uint8_t* scratch;  // 6 tiles

    static void clear() {
        KTDESK_TILE_ZERO(0);
        KTDESK_TILE_ZERO(1);
        if constexpr (kSums > 2) KTDESK_TILE_ZERO(2);
        if constexpr (kSums > 3) KTDESK_TILE_ZERO(3);
        if constexpr (kSums > 4) KTDESK_TILE_ZERO(4);
        if constexpr (kSums > 5) KTDESK_TILE_ZERO(5);
    }

    void put(const TilePanel& panel, __m512 scales) const {
        KTDESK_TILE_STORE(0, scratch);
        KTDESK_TILE_STORE(1, scratch + kTileBytes);
        if constexpr (kSums > 2) KTDESK_TILE_STORE(2, scratch + 2 * kTileBytes);
        if constexpr (kSums > 3) KTDESK_TILE_STORE(3, scratch + 3 * kTileBytes);
        if constexpr (kSums > 4) KTDESK_TILE_STORE(4, scratch + 4 * kTileBytes);
        if constexpr (kSums > 5) KTDESK_TILE_STORE(5, scratch + 5 * kTileBytes);
        for (int64_t block = 0; block < B; ++block) put_block(block, panel, scales);
    }

  private:
    void put_block(int64_t block, const TilePanel& panel, __m512 scales) const {
        const auto columns = static_cast<__mmask16>((1u << panel.num_columns) - 1);
        const int64_t begin = block * kTileRows,
                      end = begin + kTileRows < num_rows ? begin + kTileRows : num_rows;
        const auto& f =
            *reinterpret_cast<const RowFacts*>(reinterpret_cast<const uint8_t*>(facts) + block * block_bytes);
        const uint8_t* sums = scratch + block * kTileBytes;
        for (int64_t t = begin, i = 0; t < end; ++t, ++i, sums += kTileStride) {
            const __m512i middle =
                _mm512_sub_epi32(_mm512_load_si512(sums + B * kTileBytes), _mm512_set1_epi32(f.high_sums[i]));
            __m512 sum = _mm512_mul_ps(_mm512_cvtepi32_ps(middle), _mm512_set1_ps(256));
            if constexpr (kLow) {
                const __m512i least = _mm512_sub_epi32(_mm512_load_si512(sums + 2 * B * kTileBytes),
                                                       _mm512_set1_epi32(f.low_sums[i]));
                const __m512i wanted = _mm512_and_si512(least, _mm512_set1_epi32(f.needs_low[i]));
                sum = _mm512_add_ps(sum, _mm512_cvtepi32_ps(wanted));
            }
            sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), _mm512_set1_ps(65536), sum);
            const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(f.scales[i]));
            _mm512_mask_storeu_ps(outputs[t] + panel.column, columns, _mm512_mul_ps(sum, scale));
        }
    }
};

// Unpacked tiles of a panel, step by step. Where they are needed once, a few steps are enough, and stay in
// the first-level cache.
struct UnpackedPlanes {
    uint8_t* data;
    int64_t step_mask;

    uint8_t* step(int64_t index) const { return data + (index & step_mask) * kTileStepBytes; }
};

// So many steps are unpacked before the first is multiplied. A tile load waits until what it reads has been
// written to the cache, and that until all before it is done: products would wait for unpacking and unpacking
// for products, if they were next to each other.
constexpr int64_t kLead = 3, kRingSteps = 4;

template <class Panel>
struct Unpacker {
    Panel panel;
    int64_t num_groups;

    template <int kQuarter>
    [[gnu::always_inline]] void unpack(int64_t group, uint8_t* tile) const {
        panel.codes(group).template unpack<kQuarter>(tile);
    }

    // A step, whose second half may not be there: those rows meet zeros.
    void unpack_step(int64_t step, uint8_t* tile) const {
        unpack_group(2 * step, tile);
        if (2 * step + 1 < num_groups) unpack_group(2 * step + 1, tile + kTileBytes / 2);
    }

    // The same, between the tile instructions of another step.
    template <class Step>
    [[gnu::always_inline]] void unpack_between(int64_t index, uint8_t* tile, const Step& step) const {
        const auto first = panel.codes(2 * index);
        step.template issue<0>();
        first.template unpack<0>(tile);
        step.template issue<1>();
        first.template unpack<1>(tile);
        step.template issue<2>();
        first.template unpack<2>(tile);
        step.template issue<3>();
        first.template unpack<3>(tile);
        const auto second = panel.codes(2 * index + 1);
        tile += kTileBytes / 2;
        step.template issue<4>();
        second.template unpack<0>(tile);
        step.template issue<5>();
        second.template unpack<1>(tile);
        step.template issue<6>();
        second.template unpack<2>(tile);
        step.template issue<7>();
        second.template unpack<3>(tile);
    }

  private:
    void unpack_group(int64_t group, uint8_t* tile) const {
        const auto codes = panel.codes(group);
        codes.template unpack<0>(tile);
        codes.template unpack<1>(tile);
        codes.template unpack<2>(tile);
        codes.template unpack<3>(tile);
    }
};

// A call of multiply: chunks of a few blocks, and for each all panels. The first chunk unpacks them; if it is
// the only one, a few steps at a time.
template <class Panel>
struct IntegerCall {
    const TilePanel* panels;
    const TileRows& rows;
    float* const* outputs;
    uint8_t* scratch;  // 8 KB for sums, 8 KB for the ring, then the unpacked panels
    __m512 result_scales[kMaxTilePanels];

    int64_t num_steps() const { return num_tile_steps(rows.length); }

    bool any_needs_low() const {
        int32_t any = 0;
        for (int64_t t = 0; t < rows.num_rows; ++t) any |= facts_of(t / kTileRows)->needs_low[t % kTileRows];
        return any != 0;
    }

    const RowFacts* facts_of(int64_t block) const {
        return reinterpret_cast<const RowFacts*>(rows.data + block * rows.block_bytes() +
                                                 num_steps() * kTileStepBytes);
    }

    template <int B, bool kLow>
    void unpack_and_multiply(int64_t p, const UnpackedPlanes& unpacked, const uint8_t* data) {
        Unpacker<Panel> from = {{}, rows.length / kTileValues};
        from.panel.start(panels[p].data, rows.length);
        result_scales[p] = from.panel.result_scale();
        // Whole steps ahead of the products; the last may be half of one.
        const int64_t steps = num_steps(), whole = from.num_groups / 2;
        const int64_t lead = kLead < steps ? kLead : steps;
        for (int64_t i = 0; i < lead; ++i) from.unpack_step(i, unpacked.step(i));
        for (int64_t i = 0; i < steps; ++i) {
            const ByteStep<B, kLow> step = {data + i * kTileStepBytes, rows.block_bytes(), unpacked.step(i)};
            const int64_t next = i + lead;
            if (next < whole) {
                from.unpack_between(next, unpacked.step(next), step);
            } else {
                if (next < steps) from.unpack_step(next, unpacked.step(next));
                step.issue_all();
            }
        }
    }

    // Panel p times the B blocks from `begin`.
    template <int B, bool kLow>
    void multiply(int64_t p, int64_t begin, bool is_first, bool is_only) {
        const UnpackedPlanes unpacked =
            is_only ? UnpackedPlanes{scratch + 8 * 1024, kRingSteps - 1}
                    : UnpackedPlanes{scratch + 16 * 1024 + p * num_steps() * kTileStepBytes, -1};
        const uint8_t* data = rows.data + begin * rows.block_bytes();
        ByteProducts<B, kLow>::clear();
        if (is_first) {
            unpack_and_multiply<B, kLow>(p, unpacked, data);
        } else {
            for (int64_t i = 0; i < num_steps(); ++i)
                ByteStep<B, kLow>{data + i * kTileStepBytes, rows.block_bytes(), unpacked.step(i)}
                    .issue_all();
        }
        const ByteProducts<B, kLow> products = {facts_of(begin), rows.block_bytes(),
                                                outputs + begin * kTileRows,
                                                rows.num_rows - begin * kTileRows, scratch};
        products.put(panels[p], result_scales[p]);
    }

    void multiply_all(int64_t num_panels) {
        const bool low = any_needs_low();
        const int64_t num_blocks = num_tile_blocks(rows.num_rows), most = low ? 2 : 3;
        const int64_t num_chunks = (num_blocks + most - 1) / most;
        for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
            const int64_t begin = num_blocks * chunk / num_chunks;
            const int64_t count = num_blocks * (chunk + 1) / num_chunks - begin;
            const bool is_first = chunk == 0, is_only = num_chunks == 1;
            for (int64_t p = 0; p < num_panels; ++p) {
                if (low)
                    count == 1 ? multiply<1, true>(p, begin, is_first, is_only)
                               : multiply<2, true>(p, begin, is_first, is_only);
                else if (count == 1)
                    multiply<1, false>(p, begin, is_first, is_only);
                else
                    count == 2 ? multiply<2, false>(p, begin, is_first, is_only)
                               : multiply<3, false>(p, begin, is_first, is_only);
            }
        }
    }
};

template <class Panel>
void multiply_integers(const TilePanel* panels, int64_t num_panels, const TileRows& rows,
                       float* const* outputs, uint8_t* scratch) {
    IntegerCall<Panel> call = {panels, rows, outputs, scratch, {}};
    call.multiply_all(num_panels);
}
