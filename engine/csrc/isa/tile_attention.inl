// Attention on tiles; amx_attention.cpp says how they lie. Included after cache_loads.inl.

constexpr int64_t kTile = 1024;    // bytes
constexpr int64_t kTileLine = 64;  // bytes of a row of a tile; all tiles have 16

#define KTDESK_ZERO(tile) asm volatile("tilezero %%tmm" #tile::: "memory")
#define KTDESK_LOAD(tile, from, stride) \
    asm volatile("tileloadd (%0,%1,1), %%tmm" #tile::"r"(from), "r"(stride) : "memory")
#define KTDESK_STORE(tile, to, stride) \
    asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(stride) : "memory")
#define KTDESK_MULTIPLY(sum, rows, columns) \
    asm volatile("tdpbf16ps %%tmm" #columns ", %%tmm" #rows ", %%tmm" #sum::: "memory")

// ---- Into tiles

__m512i load_line(const void* p) { return _mm512_load_si512(p); }
void store_line(void* p, __m512i line) { _mm512_store_si512(p, line); }

// 32 values, those of `low` first.
__m512i to_bf16(__m512 low, __m512 high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }

// What bfloat16 leaves of a value.
__m512 rest_of(__m512 x) {
    const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
    return _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16)));
}

// Lane i holds the pair low[i], high[i].
__m512i to_pairs(__m512 low, __m512 high) {
    alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(load_line(kOrder), to_bf16(low, high));
}

// Exchanges rows and columns of 16 lines of 16 lanes.
void turn(const __m512i* lines, uint8_t* tile) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(lines[i], lines[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(lines[i], lines[i + 1]);
    }
    // b[4g + c]: in each part of 128 bits, column c of that part for lines 4g..4g + 3.
    for (int g = 0; g < 16; g += 4) {
        b[g] = _mm512_unpacklo_epi64(a[g], a[g + 2]);
        b[g + 1] = _mm512_unpackhi_epi64(a[g], a[g + 2]);
        b[g + 2] = _mm512_unpacklo_epi64(a[g + 1], a[g + 3]);
        b[g + 3] = _mm512_unpackhi_epi64(a[g + 1], a[g + 3]);
    }
    for (int c = 0; c < 4; ++c) {
        const __m512i even_low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
        const __m512i odd_low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
        const __m512i even_high = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
        const __m512i odd_high = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
        store_line(tile + c * kTileLine, _mm512_shuffle_i32x4(even_low, even_high, 0x88));
        store_line(tile + (4 + c) * kTileLine, _mm512_shuffle_i32x4(odd_low, odd_high, 0x88));
        store_line(tile + (8 + c) * kTileLine, _mm512_shuffle_i32x4(even_low, even_high, 0xdd));
        store_line(tile + (12 + c) * kTileLine, _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd));
    }
}

// The tiles, and then those of what they leave.
void pack_queries(const float* queries, int64_t length, uint8_t* tiles) {
    uint8_t* rests = tiles + num_key_steps(length) * kTile;
    for (int64_t d = 0; d < length; d += 32, tiles += kTile, rests += kTile) {
        __m512i lines[16], rest_lines[16];
        for (int r = 0; r < 16; ++r) {
            const float* query = queries + r * length + d;
            const __m512 low = Vec::load(query), high = d + 16 < length ? Vec::load(query + 16) : Vec::zero();
            lines[r] = to_bf16(low, high);
            rest_lines[r] = to_bf16(rest_of(low), rest_of(high));
        }
        turn(lines, tiles);
        turn(rest_lines, rests);
    }
}

// Bytes between what is read and what is asked for into the first-level cache.
constexpr int64_t kAhead = 2048;

void ask_for(const uint8_t* row, int64_t num_bytes) {
    for (int64_t i = 0; i < num_bytes; i += 64) __builtin_prefetch(row + kAhead + i, 0, 3);
}

// The second-level cache for what comes later: part i of 32.
void ask_for_part(const uint8_t* later, int64_t num_bytes, int64_t i) {
    if (!later) return;
    for (int64_t byte = num_bytes * i / 32; byte < num_bytes * (i + 1) / 32; byte += 64)
        __builtin_prefetch(later + byte, 0, 2);
}

template <class Cached>
__m512 load_16(const uint8_t* row, int64_t d) {
    return Cached::load(row, d, Cached::scale(row, d));
}

// For each 32 values, four tiles: 16 positions below each other. `rests` lies as far behind `tiles` as all
// these take.
template <class Cached>
void pack_keys(const CachedTile& keys, int64_t num_positions, uint8_t* tiles) {
    const int64_t step = kStretchPositions * kTileLine, num_steps = num_key_steps(keys.length);
    const int64_t to_rests = num_steps * step;
    for (int64_t p = 0; p < num_positions; ++p) {
        const uint8_t* row = keys.rows + p * keys.stride;
        ask_for(row, keys.stride);
        uint8_t* line = tiles + p * kTileLine;
        for (int64_t d = 0; d < keys.length; d += 32, line += step) {
            const __m512 low = load_16<Cached>(row, d);
            const __m512 high = d + 16 < keys.length ? load_16<Cached>(row, d + 16) : Vec::zero();
            store_line(line, to_bf16(low, high));
            store_line(line + to_rests, to_bf16(rest_of(low), rest_of(high)));
        }
    }
    for (int64_t p = num_positions; p < kStretchPositions; ++p)
        for (int64_t i = 0; i < 2 * num_steps; ++i)
            store_line(tiles + i * step + p * kTileLine, _mm512_setzero_si512());
}

// For each 16 values, two tiles of 32 positions: pairs of positions below each other. Then the same of what
// they leave.
template <class Cached>
void pack_values(const CachedStretch& s, uint8_t* tiles) {
    const CachedTile& values = s.values;
    const int64_t step = 2 * kTile, to_rests = values.length / 16 * step;
    for (int64_t p = 0; p < kStretchPositions; p += 2) {
        const uint8_t* row = values.rows + p * values.stride;
        const uint8_t* next = row + values.stride;
        ask_for(row, 2 * values.stride);
        ask_for_part(s.later_keys, kStretchPositions * s.keys.stride, p / 2);
        uint8_t* line = tiles + p / 2 * kTileLine;
        for (int64_t d = 0; d < values.length; d += 16, line += step) {
            const __m512 low = p < s.num_positions ? load_16<Cached>(row, d) : Vec::zero();
            const __m512 high = p + 1 < s.num_positions ? load_16<Cached>(next, d) : Vec::zero();
            store_line(line, to_pairs(low, high));
            store_line(line + to_rests, to_pairs(rest_of(low), rest_of(high)));
        }
    }
}

template <class Cached>
TileStretch pack_stretch(const CachedStretch& s, uint8_t* keys, uint8_t* values) {
    pack_keys<Cached>(s.keys, s.num_positions, keys);
    pack_values<Cached>(s, values);
    return {keys,
            kTileLine,
            kTile,
            4 * kTile,
            values,
            keys + num_key_steps(s.keys.length) * 4 * kTile,
            values + s.values.length / 16 * 2 * kTile};
}

// ---- bfloat16 as it lies in the cache

// Pairs of the low and the high 16 of 32 positions' values.
struct Pairs {
    __m512i low, high;
};

Pairs interleave(__m512i even, __m512i odd) {
    alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                      37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                      11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = load_line(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    return {_mm512_permutex2var_epi16(even, low, odd), _mm512_permutex2var_epi16(even, high, odd)};
}

// As pack_values, of values that are bfloat16 and a multiple of 32.
void pack_bf16_values(const CachedStretch& s, uint8_t* tiles) {
    const CachedTile& values = s.values;
    for (int64_t p = 0; p < s.num_positions; p += 2) {
        const uint8_t *row = values.rows + p * values.stride, *next = row + values.stride;
        ask_for(row, 2 * values.stride);
        ask_for_part(s.later_keys, kStretchPositions * s.keys.stride, p / 2);
        uint8_t* line = tiles + p / 2 * kTileLine;
        const bool is_pair = p + 1 < s.num_positions;
        for (int64_t d = 0; d < values.length; d += 32, line += 4 * kTile) {
            const __m512i odd = is_pair ? _mm512_loadu_si512(next + 2 * d) : _mm512_setzero_si512();
            const Pairs pairs = interleave(_mm512_loadu_si512(row + 2 * d), odd);
            store_line(line, pairs.low);
            store_line(line + 2 * kTile, pairs.high);
        }
    }
    for (int64_t p = (s.num_positions + 1) / 2 * 2; p < kStretchPositions; p += 2)
        for (int64_t d = 0; d < values.length; d += 16)
            store_line(tiles + d / 16 * 2 * kTile + p / 2 * kTileLine, _mm512_setzero_si512());
}

// Keys need no packing, whatever stands where nobody wrote: those scores are hidden.
TileStretch pack_bf16_stretch(const CachedStretch& s, uint8_t* keys, uint8_t* values) {
    const bool is_ready = s.is_whole && s.keys.length % 32 == 0 && s.values.length % 32 == 0;
    if (!is_ready) return pack_stretch<CachedBF16>(s, keys, values);
    pack_bf16_values(s, values);
    return {s.keys.rows, s.keys.stride, 16 * s.keys.stride, kTileLine, values, nullptr, nullptr};
}

// ---- Scores

// Adds keys times queries to registers 0..3.
void add_scores(const TileStretch& s, const uint8_t* keys, const uint8_t* queries, int64_t num_steps) {
    const int64_t line = kTileLine;
    for (int64_t i = 0; i < num_steps; ++i, keys += s.key_step, queries += kTile) {
        KTDESK_LOAD(4, queries, line);
        KTDESK_LOAD(5, keys, s.key_row);
        KTDESK_MULTIPLY(0, 5, 4);
        KTDESK_LOAD(6, keys + s.key_block, s.key_row);
        KTDESK_MULTIPLY(1, 6, 4);
        KTDESK_LOAD(7, keys + 2 * s.key_block, s.key_row);
        KTDESK_MULTIPLY(2, 7, 4);
        KTDESK_LOAD(5, keys + 3 * s.key_block, s.key_row);
        KTDESK_MULTIPLY(3, 5, 4);
    }
}

// scores: (64 positions, 16 queries)
void score_stretch(const TileStretch& s, const TileQueries& q, float* scores) {
    const int64_t line = kTileLine;
    KTDESK_ZERO(0);
    KTDESK_ZERO(1);
    KTDESK_ZERO(2);
    KTDESK_ZERO(3);
    add_scores(s, s.keys, q.queries + q.num_key_steps * kTile, q.num_key_steps);
    if (s.key_rests) add_scores(s, s.key_rests, q.queries, q.num_key_steps);
    add_scores(s, s.keys, q.queries, q.num_key_steps);
    uint8_t* to = reinterpret_cast<uint8_t*>(scores);
    KTDESK_STORE(0, to, line);
    KTDESK_STORE(1, to + kTile, line);
    KTDESK_STORE(2, to + 2 * kTile, line);
    KTDESK_STORE(3, to + 3 * kTile, line);
}

// 2^x; 0 below -126, NaN at NaN. Off by at most 3e-6 of itself, which two bfloat16 do not see.
__m512 power_of_two(__m512 x) {
    const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);  // NaN stays NaN
    const __m512 n = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(bounded, n);
    // The Taylor series of exp(r ln 2), |r| <= 1/2.
    __m512 sum = _mm512_set1_ps(1.3333558e-3f);
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(9.6181291e-3f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(5.5504109e-2f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(2.4022651e-1f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(6.9314718e-1f));
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(sum, n);
}

constexpr float kLog2E = 1.44269504f;

void cap_scores(float limit, float* scores) {
    const __m512 cap = Vec::broadcast(limit), one = Vec::broadcast(1.0f);
    for (int64_t p = 0; p < kStretchPositions; ++p) {
        const __m512 x = Vec::load(scores + 16 * p);
        const __m512 e = power_of_two(_mm512_mul_ps(Vec::broadcast(-2 * kLog2E / limit), _mm512_abs_ps(x)));
        const __m512 tanh = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
        Vec::store(scores + 16 * p, VecMath::with_sign_of(x, _mm512_mul_ps(cap, tanh)));
    }
}

void hide_unseen(const TileQueries& q, float* scores) {
    const __m512i begins = _mm512_loadu_si512(q.begins), ends = _mm512_loadu_si512(q.ends);
    for (int p = 0; p < kStretchPositions; ++p) {
        const __m512i position = _mm512_set1_epi32(static_cast<int>(q.first_position) + p);
        const __mmask16 unseen = p >= q.num_positions ? 0xffff
                                                      : _mm512_cmplt_epi32_mask(position, begins) |
                                                            _mm512_cmpge_epi32_mask(position, ends);
        _mm512_mask_storeu_ps(scores + 16 * p, unseen, Vec::broadcast(-__builtin_inff()));
    }
}

// The maxima with the scores', and what exponentials are taken relative to: 0 where nothing was seen.
__m512 origins(const TileQueries& q, const float* scores, __m512* maxima) {
    const __m512 nothing = Vec::broadcast(-__builtin_inff());
    __m512 largest[4] = {Vec::load(q.state.maxima), nothing, nothing, nothing};
    for (int64_t p = 0; p < kStretchPositions; p += 4)
        for (int i = 0; i < 4; ++i)
            largest[i] = VecMath::maximum(Vec::load(scores + 16 * (p + i)), largest[i]);
    *maxima =
        VecMath::maximum(VecMath::maximum(largest[0], largest[1]), VecMath::maximum(largest[2], largest[3]));
    return _mm512_mask_mov_ps(*maxima, _mm512_cmp_ps_mask(*maxima, nothing, _CMP_EQ_OQ), Vec::zero());
}

// What lies in a thread's scratch.
struct TileScratch {
    float* scores;    // 4 tiles
    uint8_t* shares;  // 2 tiles: 16 queries by 32 positions; then 2 of what they leave
    explicit TileScratch(uint8_t* memory)
        : scores(reinterpret_cast<float*>(memory)), shares(memory + 4 * kTile) {}
};

// Scores to shares; scales what was mixed before where a maximum grew.
void share_out(const TileQueries& q, const TileScratch& scratch) {
    __m512 maxima;
    const __m512 origin = origins(q, scratch.scores, &maxima), before = Vec::load(q.state.maxima);
    const __m512 log2e = Vec::broadcast(kLog2E);
    const __m512 offset = _mm512_mul_ps(origin, log2e);
    const __m512 factors = power_of_two(_mm512_mul_ps(_mm512_sub_ps(before, origin), log2e));
    __m512 sums[2] = {Vec::zero(), Vec::zero()};
    for (int64_t half = 0; half < 2; ++half) {
        const float* scores = scratch.scores + half * 32 * 16;
        __m512i pairs[16], rests[16];
        for (int i = 0; i < 16; ++i, scores += 32) {
            ask_for_part(q.later_values, q.later_bytes, 16 * half + i);
            const __m512 low = power_of_two(_mm512_fmsub_ps(Vec::load(scores), log2e, offset));
            const __m512 high = power_of_two(_mm512_fmsub_ps(Vec::load(scores + 16), log2e, offset));
            sums[0] = _mm512_add_ps(sums[0], low);
            sums[1] = _mm512_add_ps(sums[1], high);
            pairs[i] = to_pairs(low, high);
            rests[i] = to_pairs(rest_of(low), rest_of(high));
        }
        turn(pairs, scratch.shares + half * kTile);
        turn(rests, scratch.shares + (2 + half) * kTile);
    }
    const __m512 sum = _mm512_add_ps(sums[0], sums[1]);
    Vec::store(q.state.sums, _mm512_fmadd_ps(Vec::load(q.state.sums), factors, sum));
    Vec::store(q.state.maxima, maxima);
    if (_mm512_cmp_ps_mask(factors, Vec::broadcast(1.0f), _CMP_EQ_OQ) == 0xffff) return;
    alignas(64) float each[16];
    Vec::store(each, factors);
    for (int r = 0; r < 16; ++r) {
        if (each[r] == 1.0f) continue;
        const __m512 factor = Vec::broadcast(each[r]);
        float* mixed = q.state.mixed + r * q.value_length;
        for (int64_t d = 0; d < q.value_length; d += 16)
            Vec::store(mixed + d, _mm512_mul_ps(factor, Vec::load(mixed + d)));
    }
}

// ---- Values

// Adds shares times 16 values to register 0 or 1; `from` are the values, and `rests` what they leave.
#define KTDESK_MIX(sum, from)             \
    KTDESK_LOAD(6, from, line);           \
    KTDESK_MULTIPLY(sum, 4, 6);           \
    KTDESK_LOAD(7, (from) + kTile, line); \
    KTDESK_MULTIPLY(sum, 5, 7)
#define KTDESK_MIX_TWICE(sum, from)       \
    KTDESK_LOAD(6, from, line);           \
    KTDESK_MULTIPLY(sum, 2, 6);           \
    KTDESK_LOAD(7, (from) + kTile, line); \
    KTDESK_MULTIPLY(sum, 3, 7);           \
    KTDESK_MULTIPLY(sum, 4, 6);           \
    KTDESK_MULTIPLY(sum, 5, 7)

void mix_values(const TileStretch& s, const TileQueries& q, const TileScratch& scratch) {
    const int64_t line = kTileLine, stride = q.value_length * 4;
    KTDESK_LOAD(4, scratch.shares, line);
    KTDESK_LOAD(5, scratch.shares + kTile, line);
    KTDESK_LOAD(2, scratch.shares + 2 * kTile, line);
    KTDESK_LOAD(3, scratch.shares + 3 * kTile, line);
    const uint8_t *values = s.values, *rests = s.value_rests;
    float* mixed = q.state.mixed;
    for (int64_t d = 0; d < q.value_length; d += 32, values += 4 * kTile, mixed += 32) {
        const bool is_pair = d + 16 < q.value_length;
        KTDESK_LOAD(0, mixed, stride);
        if (is_pair) KTDESK_LOAD(1, mixed + 16, stride);
        if (rests) {
            KTDESK_MIX(0, rests);
            if (is_pair) {
                KTDESK_MIX(1, rests + 2 * kTile);
            }
            rests += 4 * kTile;
        }
        KTDESK_MIX_TWICE(0, values);
        KTDESK_STORE(0, mixed, stride);
        if (!is_pair) break;
        KTDESK_MIX_TWICE(1, values + 2 * kTile);
        KTDESK_STORE(1, mixed + 16, stride);
    }
}

void attend(const TileStretch& s, const TileQueries& q) {
    const TileScratch scratch(q.scratch);
    score_stretch(s, q, scratch.scores);
    if (q.soft_cap != 0) cap_scores(q.soft_cap, scratch.scores);
    if (!q.see_all) hide_unseen(q, scratch.scores);
    share_out(q, scratch);
    mix_values(s, q, scratch);
}

TileAttention make_tile_attention() {
    TileAttention table = {};
    table.pack_queries = pack_queries;
    table.pack_stretch[F32] = pack_stretch<CachedF32>;
    table.pack_stretch[F16] = pack_stretch<CachedF16>;
    table.pack_stretch[BF16] = pack_bf16_stretch;
    table.pack_stretch[Q8_0] = pack_stretch<CachedQ8_0>;
    table.attend = attend;
    return table;
}
