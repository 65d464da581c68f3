// Products of unpacked panels with blocks of 16 rows, in tile registers. Included after tile_unpack.inl.
//
// Tiles hold 16 rows of 64 bytes. A product adds to 16 rows x 16 columns of float32 what 16 x 32 values of
// the rows and 32 x 16 of the panel give. Two panels times up to three blocks are summed at once, in
// registers 0..5.

#define KTDESK_TILE_MULTIPLY(sum, rows, panel) KTDESK_TILE_PRODUCT("tdpbf16ps", sum, rows, panel)

constexpr int64_t kMaxBlocks = 3;

// The tile instructions of one step of 32 values: P panels times B blocks. They are dealt out to eight slots,
// between which the next panels are unpacked: tile unit and vector units then work at the same time, which
// they do not where one kind of instruction follows the other in long runs.
template <int P, int B>
struct Step {
    const uint8_t* rows;  // the tile of the first block; those of the others are block_bytes further
    int64_t block_bytes;
    const uint8_t* panels;

    template <int kSlot>
    [[gnu::always_inline]] void issue() const {
        if constexpr (P == 2 && B == 3) issue_2x3<kSlot>();
        if constexpr (P == 2 && B == 2) issue_2x2<kSlot>();
        if constexpr (P == 2 && B == 1) issue_2x1<kSlot>();
        if constexpr (P == 1) issue_1<kSlot>();
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
    template <int kSlot>
    [[gnu::always_inline]] void issue_2x3() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(7, panels);
            KTDESK_TILE_LOAD(6, rows);
        }
        if constexpr (kSlot == 1) {
            KTDESK_TILE_MULTIPLY(0, 6, 7);
            KTDESK_TILE_LOAD(6, rows + block_bytes);
        }
        if constexpr (kSlot == 2) KTDESK_TILE_MULTIPLY(1, 6, 7);
        if constexpr (kSlot == 3) {
            KTDESK_TILE_LOAD(6, rows + 2 * block_bytes);
            KTDESK_TILE_MULTIPLY(2, 6, 7);
        }
        if constexpr (kSlot == 4) {
            KTDESK_TILE_LOAD(7, panels + kTileBytes);
            KTDESK_TILE_MULTIPLY(5, 6, 7);
        }
        if constexpr (kSlot == 5) KTDESK_TILE_LOAD(6, rows + block_bytes);
        if constexpr (kSlot == 6) {
            KTDESK_TILE_MULTIPLY(4, 6, 7);
            KTDESK_TILE_LOAD(6, rows);
        }
        if constexpr (kSlot == 7) KTDESK_TILE_MULTIPLY(3, 6, 7);
    }

    template <int kSlot>
    [[gnu::always_inline]] void issue_2x2() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(7, panels);
            KTDESK_TILE_LOAD(6, rows);
        }
        if constexpr (kSlot == 1) KTDESK_TILE_MULTIPLY(0, 6, 7);
        if constexpr (kSlot == 2) KTDESK_TILE_LOAD(5, rows + block_bytes);
        if constexpr (kSlot == 3) KTDESK_TILE_MULTIPLY(1, 5, 7);
        if constexpr (kSlot == 4) KTDESK_TILE_LOAD(2, panels + kTileBytes);
        if constexpr (kSlot == 5) KTDESK_TILE_MULTIPLY(3, 6, 2);
        if constexpr (kSlot == 7) KTDESK_TILE_MULTIPLY(4, 5, 2);
    }

    template <int kSlot>
    [[gnu::always_inline]] void issue_2x1() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(7, panels);
            KTDESK_TILE_LOAD(6, rows);
        }
        if constexpr (kSlot == 2) KTDESK_TILE_MULTIPLY(0, 6, 7);
        if constexpr (kSlot == 4) KTDESK_TILE_LOAD(2, panels + kTileBytes);
        if constexpr (kSlot == 6) KTDESK_TILE_MULTIPLY(3, 6, 2);
    }

    // All in the first four slots: unpacking one panel has no more.
    template <int kSlot>
    [[gnu::always_inline]] void issue_1() const {
        if constexpr (kSlot == 0) {
            KTDESK_TILE_LOAD(7, panels);
            KTDESK_TILE_LOAD(6, rows);
        }
        if constexpr (kSlot == 1) KTDESK_TILE_MULTIPLY(0, 6, 7);
        if constexpr (kSlot == 1 && B > 1) KTDESK_TILE_LOAD(5, rows + block_bytes);
        if constexpr (kSlot == 2 && B > 1) KTDESK_TILE_MULTIPLY(1, 5, 7);
        if constexpr (kSlot == 2 && B > 2) KTDESK_TILE_LOAD(4, rows + 2 * block_bytes);
        if constexpr (kSlot == 3 && B > 2) KTDESK_TILE_MULTIPLY(2, 4, 7);
    }
};

template <int P, int B>
void clear_sums() {
    KTDESK_TILE_ZERO(0);
    if constexpr (B > 1) KTDESK_TILE_ZERO(1);
    if constexpr (B > 2) KTDESK_TILE_ZERO(2);
    if constexpr (P > 1) KTDESK_TILE_ZERO(3);
    if constexpr (P > 1 && B > 1) KTDESK_TILE_ZERO(4);
    if constexpr (P > 1 && B > 2) KTDESK_TILE_ZERO(5);
}

// Where the products of some blocks go.
struct Products {
    float* const* outputs;  // of the first row
    int64_t num_rows;
    uint8_t* scratch;  // 6 tiles

    // One register's, `block` blocks further, scaled by column.
    void put(const uint8_t* tile, int64_t block, const TilePanel& panel, __m512 scale) const {
        const auto columns = static_cast<__mmask16>((1u << panel.num_columns) - 1);
        const int64_t begin = block * kTileRows,
                      end = begin + kTileRows < num_rows ? begin + kTileRows : num_rows;
        for (int64_t t = begin; t < end; ++t, tile += kTileStride)
            _mm512_mask_storeu_ps(outputs[t] + panel.column, columns,
                                  _mm512_mul_ps(_mm512_load_ps(tile), scale));
    }

    template <int P, int B>
    void put_all(const TilePanel* panels, const __m512* scales) const {
        KTDESK_TILE_STORE(0, scratch);
        if constexpr (B > 1) KTDESK_TILE_STORE(1, scratch + kTileBytes);
        if constexpr (B > 2) KTDESK_TILE_STORE(2, scratch + 2 * kTileBytes);
        if constexpr (P > 1) KTDESK_TILE_STORE(3, scratch + 3 * kTileBytes);
        if constexpr (P > 1 && B > 1) KTDESK_TILE_STORE(4, scratch + 4 * kTileBytes);
        if constexpr (P > 1 && B > 2) KTDESK_TILE_STORE(5, scratch + 5 * kTileBytes);
        for (int p = 0; p < P; ++p)
            for (int b = 0; b < B; ++b) put(scratch + (3 * p + b) * kTileBytes, b, panels[p], scales[p]);
    }
};

// Unpacked tiles of one or two panels: those of a step lie side by side. Where they are needed once, a few
// steps are enough, and stay in the first-level cache.
struct UnpackedTiles {
    uint8_t* data;
    int64_t step_mask;

    template <int P>
    uint8_t* step(int64_t index) const {
        return data + (index & step_mask) * P * kTileBytes;
    }
};

constexpr int64_t kRingSteps = 4;

template <class Tiles>
void unpack_tile(const Tiles& panel, int64_t group, uint8_t* tile) {
    const auto codes = panel.codes(group);
    codes.template unpack<0>(tile);
    codes.template unpack<1>(tile);
    codes.template unpack<2>(tile);
    codes.template unpack<3>(tile);
}

// Unpacks the tile of a panel between the slots from kFirst of a step.
template <int kFirst, class Tiles, int P, int B>
[[gnu::always_inline]] inline void unpack_between(const Tiles& panel, int64_t group, uint8_t* tile,
                                                  const Step<P, B>& step) {
    step.template issue<kFirst>();
    const auto codes = panel.codes(group);
    codes.template unpack<0>(tile);
    step.template issue<kFirst + 1>();
    codes.template unpack<1>(tile);
    step.template issue<kFirst + 2>();
    codes.template unpack<2>(tile);
    step.template issue<kFirst + 3>();
    codes.template unpack<3>(tile);
}

// Unpacks P panels, and multiplies them with B blocks on the way, a step behind.
template <class Tiles, int P, int B>
void unpack_and_multiply(const Tiles* panels, const UnpackedTiles& unpacked, const uint8_t* rows,
                         int64_t block_bytes, int64_t num_steps) {
    clear_sums<P, B>();
    for (int p = 0; p < P; ++p) unpack_tile(panels[p], 0, unpacked.step<P>(0) + p * kTileBytes);
    for (int64_t i = 0; i < num_steps - 1; ++i) {
        const Step<P, B> step = {rows + i * kTileBytes, block_bytes, unpacked.step<P>(i)};
        uint8_t* next = unpacked.step<P>(i + 1);
        unpack_between<0>(panels[0], i + 1, next, step);
        if constexpr (P == 2) unpack_between<4>(panels[1], i + 1, next + kTileBytes, step);
    }
    const int64_t last = num_steps - 1;
    Step<P, B>{rows + last * kTileBytes, block_bytes, unpacked.step<P>(last)}.issue_all();
}

template <int P, int B>
void multiply_unpacked(const UnpackedTiles& unpacked, const uint8_t* rows, int64_t block_bytes,
                       int64_t num_steps) {
    clear_sums<P, B>();
    for (int64_t i = 0; i < num_steps; ++i)
        Step<P, B>{rows + i * kTileBytes, block_bytes, unpacked.step<P>(i)}.issue_all();
}

// A call of multiply: chunks of up to three blocks, and for each the panels in pairs. The first chunk unpacks
// them; if it is the only one, a few steps at a time.
template <class Tiles>
struct TileCall {
    const TilePanel* panels;
    const TileRows& rows;
    float* const* outputs;
    uint8_t* scratch;  // 8 KB for sums, 8 KB for the ring, then the unpacked panels
    __m512 result_scales[kMaxTilePanels];

    // P panels from `first` times the B blocks from `begin`.
    template <int P, int B>
    void multiply(int64_t first, int64_t begin, bool is_first, bool is_only) {
        const int64_t num_steps = rows.length / kTileValues, block_bytes = rows.block_bytes();
        uint8_t* ring = scratch + 8 * 1024;
        const UnpackedTiles unpacked =
            is_only ? UnpackedTiles{ring, kRingSteps - 1}
                    : UnpackedTiles{scratch + 16 * 1024 + first * num_steps * kTileBytes, -1};
        const uint8_t* data = rows.data + begin * block_bytes;
        if (is_first) {
            Tiles tiles[P];
            for (int p = 0; p < P; ++p) {
                tiles[p].start(panels[first + p].data, rows.length);
                result_scales[first + p] = tiles[p].result_scale();
            }
            unpack_and_multiply<Tiles, P, B>(tiles, unpacked, data, block_bytes, num_steps);
        } else {
            multiply_unpacked<P, B>(unpacked, data, block_bytes, num_steps);
        }
        const Products products = {outputs + begin * kTileRows, rows.num_rows - begin * kTileRows, scratch};
        products.put_all<P, B>(panels + first, result_scales + first);
    }

    template <int P>
    void multiply_some(int64_t first, int64_t begin, int64_t count, bool is_first, bool is_only) {
        if (count == 1)
            multiply<P, 1>(first, begin, is_first, is_only);
        else if (count == 2)
            multiply<P, 2>(first, begin, is_first, is_only);
        else
            multiply<P, 3>(first, begin, is_first, is_only);
    }

    void multiply_all(int64_t num_panels) {
        const int64_t num_blocks = num_tile_blocks(rows.num_rows);
        const int64_t num_chunks = (num_blocks + kMaxBlocks - 1) / kMaxBlocks;
        for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
            const int64_t begin = num_blocks * chunk / num_chunks;
            const int64_t count = num_blocks * (chunk + 1) / num_chunks - begin;
            for (int64_t first = 0; first < num_panels; first += 2)
                if (first + 1 < num_panels)
                    multiply_some<2>(first, begin, count, chunk == 0, num_chunks == 1);
                else
                    multiply_some<1>(first, begin, count, chunk == 0, num_chunks == 1);
        }
    }
};

template <class Tiles>
void multiply_tiles(const TilePanel* panels, int64_t num_panels, const TileRows& rows, float* const* outputs,
                    uint8_t* scratch) {
    TileCall<Tiles> call = {panels, rows, outputs, scratch, {}};
    call.multiply_all(num_panels);
}
