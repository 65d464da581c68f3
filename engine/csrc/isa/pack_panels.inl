// Rows -> panels (panels.h), in terms of one set of vectors. An ISA file includes before this pack_scales.inl
// and defines:
//   struct PackVectors {
//     Row: 32 bytes; zero(), load(p); store(p, row): to a multiple of 32, seen by others after
//     finish_stores(); nibbles(q): the low halves of 16 bytes, then the high ones; sixteens(p): byte i is 16
//     where bit i is set; field(row, shift, mask): bytes moved up by shift (down where negative), masked;
//     merge(x, y): or; transpose_dwords(rows, halves): halves[2 * i + h] = dword i of rows 8h..8h + 7;
//     transpose_words(rows, columns): columns[k] = word k of the 16 rows
//   }

using Row = PackVectors::Row;

Row field(Row row, int shift, int mask) { return PackVectors::field(row, shift, mask); }
Row merge(Row x, Row y) { return PackVectors::merge(x, y); }

// The codes of a group of 32 values, in the order of values.
Row codes_of(const BlockQ4_0& b, int) { return PackVectors::nibbles(b.q); }
Row codes_of(const BlockQ4_1& b, int) { return PackVectors::nibbles(b.q); }
Row codes_of(const BlockIQ4_NL& b, int) { return PackVectors::nibbles(b.q); }
Row codes_of(const BlockMXFP4& b, int) { return PackVectors::nibbles(b.q); }
Row codes_of(const BlockQ8_0& b, int) { return PackVectors::load(b.q); }
Row codes_of(const BlockIQ4_XS& b, int group) { return PackVectors::nibbles(b.q + 16 * group); }

Row codes_of(const BlockQ5_0& b, int) {
    return merge(PackVectors::nibbles(b.q), PackVectors::sixteens(b.fifth));
}

Row codes_of(const BlockQ5_1& b, int) {
    return merge(PackVectors::nibbles(b.q), PackVectors::sixteens(b.fifth));
}

Row codes_of(const BlockQ2_K& b, int group) {
    return field(PackVectors::load(b.q + 32 * (group / 4)), -(group % 4 * 2), 3);
}

Row codes_of(const BlockQ3_K& b, int group) {
    const Row low = field(PackVectors::load(b.q + 32 * (group / 4)), -(group % 4 * 2), 3);
    return merge(low, field(PackVectors::load(b.third), 2 - group, 4));
}

Row codes_of(const BlockQ4_K& b, int group) {
    return field(PackVectors::load(b.q + 32 * (group / 2)), -(group % 2 * 4), 15);
}

Row codes_of(const BlockQ5_K& b, int group) {
    const Row low = field(PackVectors::load(b.q + 32 * (group / 2)), -(group % 2 * 4), 15);
    return merge(low, field(PackVectors::load(b.fifth), 4 - group, 16));
}

Row codes_of(const BlockQ6_K& b, int group) {
    const uint8_t* q = b.q + 64 * (group / 4) + 32 * (group % 2);
    const Row low = field(PackVectors::load(q), -(group / 2 % 2 * 4), 15);
    return merge(low, field(PackVectors::load(b.high + 32 * (group / 4)), 4 - group % 4 * 2, 48));
}

// The vectors of a group, each in two halves: halves[2 * i + h] has rows 8h..8h + 7 of vector i.
uint8_t* write_nibbles(const Row* halves, uint8_t* to) {
    for (int i = 0; i < 8; ++i, to += 32)
        PackVectors::store(to, merge(field(halves[i], 0, 15), field(halves[8 + i], 4, 0xf0)));
    return to;
}

uint8_t* write_pairs(const Row* halves, int from_bit, uint8_t* to) {
    for (int line = 0; line < 2; ++line)
        for (int h = 0; h < 2; ++h, to += 32) {
            Row merged = PackVectors::zero();
            for (int i = 0; i < 4; ++i)
                merged = merge(merged, field(halves[2 * (4 * line + i) + h], 2 * i - from_bit, 3 << (2 * i)));
            PackVectors::store(to, merged);
        }
    return to;
}

uint8_t* write_bits(const Row* halves, int from_bit, uint8_t* to) {
    for (int h = 0; h < 2; ++h, to += 32) {
        Row merged = PackVectors::zero();
        for (int i = 0; i < 8; ++i) merged = merge(merged, field(halves[2 * i + h], i - from_bit, 1 << i));
        PackVectors::store(to, merged);
    }
    return to;
}

template <int kBits>
void write_codes(const Row* halves, uint8_t* to) {
    if constexpr (kBits == 8)
        for (int i = 0; i < 16; ++i) PackVectors::store(to + 32 * i, halves[i]);
    if constexpr (kBits == 2 || kBits == 3) to = write_pairs(halves, 0, to);
    if constexpr (kBits == 3) write_bits(halves, 2, to);
    if constexpr (kBits == 4 || kBits == 5 || kBits == 6) to = write_nibbles(halves, to);
    if constexpr (kBits == 5) write_bits(halves, 4, to);
    if constexpr (kBits == 6) write_pairs(halves, 4, to);
}

template <class Block, int kType>
void pack_panel(const uint8_t* rows, int64_t row_bytes, int64_t num_rows, int64_t length, uint8_t* panel) {
    constexpr PanelFormat format = panel_format(kType);
    constexpr int kGroups = Block::kValues / static_cast<int>(kGroupValues);
    uint8_t* scales = panel;
    uint8_t* codes = panel + panel_scales_bytes(kType, length);
    memset(panel, 0, static_cast<size_t>(panel_scales_bytes(kType, length)));
    Row row_codes[kPanelRows], halves[kPanelRows];
    for (Row& row : row_codes) row = PackVectors::zero();
    for (int64_t k = 0; k < length; k += Block::kValues, scales += format.scale_bytes) {
        const Block* blocks[kPanelRows];
        for (int n = 0; n < num_rows; ++n) {
            blocks[n] = reinterpret_cast<const Block*>(rows + n * row_bytes) + k / Block::kValues;
            scales_of(*blocks[n], ScaleRow{scales, n});
        }
        for (int group = 0; group < kGroups; ++group, codes += group_bytes(kType)) {
            for (int n = 0; n < num_rows; ++n) row_codes[n] = codes_of(*blocks[n], group);
            PackVectors::transpose_dwords(row_codes, halves);
            write_codes<format.code_bits>(halves, codes);
        }
    }
    PackVectors::finish_stores();
}

void pack_halves(const uint8_t* rows, int64_t row_bytes, int64_t num_rows, int64_t length, uint8_t* panel) {
    Row values[kPanelRows], columns[kPanelRows];
    for (Row& row : values) row = PackVectors::zero();
    for (int64_t k = 0; k < length; k += 16) {
        for (int n = 0; n < num_rows; ++n) values[n] = PackVectors::load(rows + n * row_bytes + 2 * k);
        PackVectors::transpose_words(values, columns);
        for (int i = 0; i < 16; ++i, panel += 32) PackVectors::store(panel, columns[i]);
    }
    PackVectors::finish_stores();
}

void fill_pack_panel(PackPanel* table) {
    table[Q4_0] = pack_panel<BlockQ4_0, Q4_0>;
    table[Q4_1] = pack_panel<BlockQ4_1, Q4_1>;
    table[Q5_0] = pack_panel<BlockQ5_0, Q5_0>;
    table[Q5_1] = pack_panel<BlockQ5_1, Q5_1>;
    table[Q8_0] = pack_panel<BlockQ8_0, Q8_0>;
    table[Q2_K] = pack_panel<BlockQ2_K, Q2_K>;
    table[Q3_K] = pack_panel<BlockQ3_K, Q3_K>;
    table[Q4_K] = pack_panel<BlockQ4_K, Q4_K>;
    table[Q5_K] = pack_panel<BlockQ5_K, Q5_K>;
    table[Q6_K] = pack_panel<BlockQ6_K, Q6_K>;
    table[IQ4_NL] = pack_panel<BlockIQ4_NL, IQ4_NL>;
    table[IQ4_XS] = pack_panel<BlockIQ4_XS, IQ4_XS>;
    table[MXFP4] = pack_panel<BlockMXFP4, MXFP4>;
    table[F16] = pack_halves;
    table[BF16] = pack_halves;
}
