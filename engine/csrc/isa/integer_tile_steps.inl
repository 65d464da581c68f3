// The tile instructions of a panel in planes of bytes times blocks of rows (integer_tile_products.inl), one
// step of 64 values. Included after tile_registers.inl and integer_tile_unpack.inl.

#define KTDESK_HIGH_A(sum, rows, panel) KTDESK_TILE_PRODUCT("tdpbssd", sum, rows, panel)
#define KTDESK_ANY_B(sum, rows, panel) KTDESK_TILE_PRODUCT("tdpbsud", sum, rows, panel)

// The tile instructions of one step of 64 values: a panel times B blocks. They are dealt out evenly to slots,
// between which the next steps are unpacked: next to each other they take longer, and in a machine's slow
// state much longer. Sums: registers 0.. of high * a, then the middle ones, then with kLow those of low * b,
// one for each block.
constexpr int kSlots = 16;

template <int B, bool kLow>
struct ByteStep {
    static constexpr int kNumOps = B == 1 ? 7 + kLow : B == 2 ? (kLow ? 17 : 12) : 20;

    const uint8_t* rows;  // of the first block; those of the others are block_bytes further
    int64_t block_bytes;
    const uint8_t* panel;

    template <int kSlot, int kOp = 0>
    [[gnu::always_inline]] void issue() const {
        if constexpr (kOp < kNumOps) {
            if constexpr (kOp * kSlots / kNumOps == kSlot) issue_op<kOp>();
            issue<kSlot, kOp + 1>();
        }
    }

    template <int kOp = 0>
    [[gnu::always_inline]] void issue_all() const {
        if constexpr (kOp < kNumOps) {
            issue_op<kOp>();
            issue_all<kOp + 1>();
        }
    }

  private:
    const uint8_t* high(int64_t block) const { return rows + block * block_bytes; }
    const uint8_t* low(int64_t block) const { return high(block) + kTileBytes; }
    const uint8_t* b() const { return panel + kLowPlane; }

    template <int kOp>
    [[gnu::always_inline]] void issue_op() const {
        if constexpr (B == 1) op_of_1<kOp>();
        if constexpr (B == 2 && !kLow) op_of_2<kOp>();
        if constexpr (B == 2 && kLow) op_of_2_with_low<kOp>();
        if constexpr (B == 3) op_of_3<kOp>();
    }

    template <int kOp>
    [[gnu::always_inline]] void op_of_1() const {
        if constexpr (kOp == 0) KTDESK_TILE_LOAD(4, panel);
        if constexpr (kOp == 1) KTDESK_TILE_LOAD(6, high(0));
        if constexpr (kOp == 2) KTDESK_TILE_LOAD(7, low(0));
        if constexpr (kOp == 3) KTDESK_HIGH_A(0, 6, 4);
        if constexpr (kOp == 4) KTDESK_TILE_LOAD(5, b());
        if constexpr (kOp == 5) KTDESK_HIGH_A(1, 7, 4);
        if constexpr (kOp == 6) KTDESK_ANY_B(1, 6, 5);
        if constexpr (kOp == 7) KTDESK_ANY_B(2, 7, 5);
    }

    template <int kOp>
    [[gnu::always_inline]] void op_of_2() const {
        if constexpr (kOp == 0) KTDESK_TILE_LOAD(4, panel);
        if constexpr (kOp == 1) KTDESK_TILE_LOAD(6, high(0));
        if constexpr (kOp == 2) KTDESK_TILE_LOAD(7, high(1));
        if constexpr (kOp == 3) KTDESK_HIGH_A(0, 6, 4);
        if constexpr (kOp == 4) KTDESK_TILE_LOAD(5, b());
        if constexpr (kOp == 5) KTDESK_HIGH_A(1, 7, 4);
        if constexpr (kOp == 6) KTDESK_ANY_B(2, 6, 5);
        if constexpr (kOp == 7) KTDESK_TILE_LOAD(6, low(0));
        if constexpr (kOp == 8) KTDESK_ANY_B(3, 7, 5);
        if constexpr (kOp == 9) KTDESK_TILE_LOAD(7, low(1));
        if constexpr (kOp == 10) KTDESK_HIGH_A(2, 6, 4);
        if constexpr (kOp == 11) KTDESK_HIGH_A(3, 7, 4);
    }

    template <int kOp>
    [[gnu::always_inline]] void op_of_2_with_low() const {
        if constexpr (kOp == 0) KTDESK_TILE_LOAD(7, panel);
        if constexpr (kOp == 1) KTDESK_TILE_LOAD(6, high(0));
        if constexpr (kOp == 2) KTDESK_HIGH_A(0, 6, 7);
        if constexpr (kOp == 3) KTDESK_TILE_LOAD(6, low(0));
        if constexpr (kOp == 4) KTDESK_HIGH_A(2, 6, 7);
        if constexpr (kOp == 5) KTDESK_TILE_LOAD(6, high(1));
        if constexpr (kOp == 6) KTDESK_HIGH_A(1, 6, 7);
        if constexpr (kOp == 7) KTDESK_TILE_LOAD(6, low(1));
        if constexpr (kOp == 8) KTDESK_HIGH_A(3, 6, 7);
        if constexpr (kOp == 9) KTDESK_TILE_LOAD(7, b());
        if constexpr (kOp == 10) KTDESK_ANY_B(5, 6, 7);
        if constexpr (kOp == 11) KTDESK_TILE_LOAD(6, high(1));
        if constexpr (kOp == 12) KTDESK_ANY_B(3, 6, 7);
        if constexpr (kOp == 13) KTDESK_TILE_LOAD(6, low(0));
        if constexpr (kOp == 14) KTDESK_ANY_B(4, 6, 7);
        if constexpr (kOp == 15) KTDESK_TILE_LOAD(6, high(0));
        if constexpr (kOp == 16) KTDESK_ANY_B(2, 6, 7);
    }

    template <int kOp>
    [[gnu::always_inline]] void op_of_3() const {
        if constexpr (kOp == 0) KTDESK_TILE_LOAD(7, panel);
        if constexpr (kOp == 1) KTDESK_TILE_LOAD(6, high(0));
        if constexpr (kOp == 2) KTDESK_HIGH_A(0, 6, 7);
        if constexpr (kOp == 3) KTDESK_TILE_LOAD(6, high(1));
        if constexpr (kOp == 4) KTDESK_HIGH_A(1, 6, 7);
        if constexpr (kOp == 5) KTDESK_TILE_LOAD(6, high(2));
        if constexpr (kOp == 6) KTDESK_HIGH_A(2, 6, 7);
        if constexpr (kOp == 7) KTDESK_TILE_LOAD(6, low(2));
        if constexpr (kOp == 8) KTDESK_HIGH_A(5, 6, 7);
        if constexpr (kOp == 9) KTDESK_TILE_LOAD(6, low(1));
        if constexpr (kOp == 10) KTDESK_HIGH_A(4, 6, 7);
        if constexpr (kOp == 11) KTDESK_TILE_LOAD(6, low(0));
        if constexpr (kOp == 12) KTDESK_HIGH_A(3, 6, 7);
        if constexpr (kOp == 13) KTDESK_TILE_LOAD(7, b());
        if constexpr (kOp == 14) KTDESK_TILE_LOAD(6, high(0));
        if constexpr (kOp == 15) KTDESK_ANY_B(3, 6, 7);
        if constexpr (kOp == 16) KTDESK_TILE_LOAD(6, high(1));
        if constexpr (kOp == 17) KTDESK_ANY_B(4, 6, 7);
        if constexpr (kOp == 18) KTDESK_TILE_LOAD(6, high(2));
        if constexpr (kOp == 19) KTDESK_ANY_B(5, 6, 7);
    }
};
