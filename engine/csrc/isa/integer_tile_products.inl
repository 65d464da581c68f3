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

// x has a value more than so many times the root mean square of the others: it needs the last sum. Without
// it the error of a product is at most 0.0005 of the norm.
constexpr float kLargeValue = 24;

// In the order of RowFacts.
void store_facts(const TileRows& rows, int64_t row, float scale, int32_t high_sum, int32_t low_sum,
                 int32_t needs_low) {
    uint8_t* to = rows.facts(row);
    const int64_t next = 4 * rows.block_rows;
    memcpy(to, &scale, 4);
    memcpy(to + next, &high_sum, 4);
    memcpy(to + 2 * next, &low_sum, 4);
    memcpy(to + 3 * next, &needs_low, 4);
}

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
    uint8_t* to = rows.row(row);
    const int64_t tile_bytes = rows.tile_bytes();
    __m512i highs = _mm512_setzero_si512(), lows = _mm512_setzero_si512();
    const int64_t padded = num_tile_steps(rows.length) * kTileStep;
    for (int64_t k = 0; k < padded; k += 16) {
        __m512i all = _mm512_setzero_si512();
        if (k < rows.length) all = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + k), inverse));
        const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(all, _mm512_set1_epi32(128)), 8);
        highs = _mm512_add_epi32(highs, high);
        lows = _mm512_add_epi32(lows, _mm512_sub_epi32(all, _mm512_slli_epi32(high, 8)));
        uint8_t* at = to + 2 * (k / kTileStep) * tile_bytes + k % kTileStep;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(high));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at + tile_bytes), _mm512_cvtepi32_epi8(all));
    }
    // No finite number where x has one that is none: then so are the results.
    const float scale = most / (127 * 256) + _mm512_reduce_add_ps(probe);
    const float square_of_others =
        (_mm512_reduce_add_ps(squares) - most * most) / static_cast<float>(rows.length);
    const bool is_large = most * most > kLargeValue * kLargeValue * square_of_others;
    store_facts(rows, row, scale, 128 * _mm512_reduce_add_epi32(highs), 128 * _mm512_reduce_add_epi32(lows),
                is_large ? -1 : 0);
}

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

// Unpacked tiles of a panel, step by step: only a few steps at a time, which stay in the first-level cache.
//
// So many steps are unpacked before the first is multiplied. A tile load waits until what it reads has been
// written to the cache, and that until all before it is done: products would wait for unpacking and unpacking
// for products, if they were next to each other.
constexpr int64_t kLead = 3, kRingSteps = 4;

template <class Panel>
struct Unpacker {
    Panel panel;
    int64_t num_groups;

    bool is_whole(int64_t step) const { return 2 * step + 1 < num_groups; }

    // A step, whose second half may not be there: those rows meet zeros.
    void unpack_step(int64_t step, uint8_t* tile) const {
        unpack_group<0>(panel.codes(2 * step), tile, Nothing());
        if (is_whole(step)) unpack_group<0>(panel.codes(2 * step + 1), tile + kTileBytes / 2, Nothing());
    }

    // The same, between the tile instructions of another step.
    template <class Step>
    [[gnu::always_inline]] void unpack_between(int64_t index, uint8_t* tile, const Step& step) const {
        unpack_group<0>(panel.codes(2 * index), tile, step);
        unpack_group<kSlots / 2>(panel.codes(2 * index + 1), tile + kTileBytes / 2, step);
    }

  private:
    struct Nothing {
        template <int>
        void issue() const {}
    };

    // Tile rows kRow.. of a group, each after a slot of the step.
    template <int kSlot, int kRow = 0, class Codes, class Step>
    [[gnu::always_inline]] void unpack_group(const Codes& codes, uint8_t* tile, const Step& step) const {
        if constexpr (kRow < 8) {
            step.template issue<kSlot + kRow>();
            codes.template unpack<kRow>(tile);
            unpack_group<kSlot, kRow + 1>(codes, tile, step);
        }
    }
};

// Blocks from `begin` that are multiplied with a panel at once.
struct BlockRun {
    int64_t begin, count;
    bool needs_low;
};

// A call of multiply: a few blocks with each panel, then the next blocks, for which panels are unpacked anew.
// To keep them unpacked costs more: they would have to leave the first-level cache. The first steps of what
// is multiplied next are unpacked between the last products of what is multiplied now.
template <class Panel>
struct IntegerCall {
    const TileRows& rows;
    float* const* outputs;
    uint8_t* scratch;  // 8 KB for sums, 8 KB for unpacked steps
    Unpacker<Panel> current, next;
    int64_t num_unpacked = 0;  // steps before those of the current panel

    int64_t num_steps() const { return num_tile_steps(rows.length); }
    int64_t lead() const { return kLead < num_steps() ? kLead : num_steps(); }

    const RowFacts* facts_of(int64_t block) const {
        return reinterpret_cast<const RowFacts*>(rows.facts(block * kTileRows));
    }

    bool needs_low(int64_t block) const {
        const int64_t left = rows.num_rows - block * kTileRows;
        int32_t any = 0;
        for (int64_t i = 0; i < kTileRows && i < left; ++i) any |= facts_of(block)->needs_low[i];
        return any != 0;
    }

    uint8_t* unpacked(int64_t step) const {
        return scratch + 8 * 1024 + (num_unpacked + step) % kRingSteps * kTileStepBytes;
    }

    Unpacker<Panel> start(const TilePanel& panel) const {
        Unpacker<Panel> unpacker = {{}, rows.length / kTileValues};
        unpacker.panel.start(panel.data, rows.length);
        return unpacker;
    }

    // The products of step i, between which a later step is unpacked, if there is one. The last step of a
    // panel may be half of one.
    template <class Step>
    [[gnu::always_inline]] void multiply_step(int64_t i, bool has_next, const Step& step) const {
        const int64_t ahead = i + lead(), of_next = ahead - num_steps();
        const Unpacker<Panel>& from = of_next < 0 ? current : next;
        const int64_t index = of_next < 0 ? ahead : of_next;
        const bool is_any = of_next < 0 || has_next;
        if (is_any && from.is_whole(index)) {
            from.unpack_between(index, unpacked(ahead), step);
        } else {
            if (is_any) from.unpack_step(index, unpacked(ahead));
            step.issue_all();
        }
    }

    template <int B, bool kLow>
    [[gnu::noinline]] void multiply_blocks(const TilePanel& panel, int64_t begin, bool has_next) const {
        const uint8_t* data = rows.data + begin * rows.block_bytes();
        ByteProducts<B, kLow>::clear();
        for (int64_t i = 0; i < num_steps(); ++i)
            multiply_step(i, has_next,
                          ByteStep<B, kLow>{data + i * kTileStepBytes, rows.block_bytes(), unpacked(i)});
        const ByteProducts<B, kLow> products = {facts_of(begin), rows.block_bytes(),
                                                outputs + begin * kTileRows,
                                                rows.num_rows - begin * kTileRows, scratch};
        products.put(panel, current.panel.result_scale());
    }

    // next_panel: null where nothing comes after it.
    void multiply_run(const TilePanel& panel, const BlockRun& run, const TilePanel* next_panel) {
        const bool has_next = next_panel != nullptr;
        if (has_next) next = start(*next_panel);
        if (run.needs_low)
            run.count == 1 ? multiply_blocks<1, true>(panel, run.begin, has_next)
                           : multiply_blocks<2, true>(panel, run.begin, has_next);
        else if (run.count == 1)
            multiply_blocks<1, false>(panel, run.begin, has_next);
        else
            run.count == 2 ? multiply_blocks<2, false>(panel, run.begin, has_next)
                           : multiply_blocks<3, false>(panel, run.begin, has_next);
        num_unpacked += num_steps();
        current = next;
    }

    // Of blocks that all need the last sum, or all do not: as many as go at once, the last ones in equal
    // parts.
    BlockRun run_at(int64_t begin) const {
        const bool low = needs_low(begin);
        const int64_t num_blocks = num_tile_blocks(rows.num_rows), most = low ? 2 : 3;
        int64_t count = 1;
        while (count < 2 * most && begin + count < num_blocks && needs_low(begin + count) == low) ++count;
        const int64_t num_parts = (count + most - 1) / most;
        return {begin, (count + num_parts - 1) / num_parts, low};
    }

    void multiply(const TilePanel* panels, int64_t num_panels) {
        current = start(panels[0]);
        for (int64_t i = 0; i < lead(); ++i) current.unpack_step(i, unpacked(i));
        const int64_t num_blocks = num_tile_blocks(rows.num_rows);
        for (int64_t begin = 0; begin < num_blocks;) {
            const BlockRun run = run_at(begin);
            begin += run.count;
            for (int64_t p = 0; p < num_panels; ++p) {
                const bool is_last = begin == num_blocks && p + 1 == num_panels;
                multiply_run(panels[p], run, is_last ? nullptr : &panels[(p + 1) % num_panels]);
            }
        }
    }
};

template <class Panel>
void multiply_integers(const TilePanel* panels, int64_t num_panels, const TileRows& rows,
                       float* const* outputs, uint8_t* scratch) {
    IntegerCall<Panel> call = {rows, outputs, scratch, {}, {}};
    call.multiply(panels, num_panels);
}
