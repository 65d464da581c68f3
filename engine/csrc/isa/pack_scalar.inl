// What pack_panels.inl needs of vectors, in plain C++.

struct PackVectors {
    struct Row {
        uint8_t byte[32];
    };

    static Row zero() { return {}; }

    static Row load(const void* p) {
        Row row;
        memcpy(row.byte, p, sizeof(row.byte));
        return row;
    }

    static void store(uint8_t* p, const Row& row) { memcpy(p, row.byte, sizeof(row.byte)); }
    static void finish_stores() {}

    static Row nibbles(const uint8_t* q) {
        Row row;
        for (int i = 0; i < 16; ++i) {
            row.byte[i] = q[i] & 15;
            row.byte[16 + i] = q[i] >> 4;
        }
        return row;
    }

    static Row sixteens(const uint8_t* bits) {
        Row row;
        for (int i = 0; i < 32; ++i) row.byte[i] = static_cast<uint8_t>((bits[i / 8] >> (i % 8) & 1) << 4);
        return row;
    }

    static Row field(Row row, int shift, int mask) {
        for (uint8_t& byte : row.byte)
            byte = static_cast<uint8_t>((shift >= 0 ? byte << shift : byte >> -shift) & mask);
        return row;
    }

    static Row merge(Row x, const Row& y) {
        for (int i = 0; i < 32; ++i) x.byte[i] = static_cast<uint8_t>(x.byte[i] | y.byte[i]);
        return x;
    }

    static void transpose_dwords(const Row* rows, Row* halves) {
        for (int i = 0; i < 8; ++i)
            for (int n = 0; n < 16; ++n)
                memcpy(halves[2 * i + n / 8].byte + 4 * (n % 8), rows[n].byte + 4 * i, 4);
    }

    static void transpose_words(const Row* rows, Row* columns) {
        for (int k = 0; k < 16; ++k)
            for (int n = 0; n < 16; ++n) memcpy(columns[k].byte + 2 * n, rows[n].byte + 2 * k, 2);
    }
};
