// Attention over one page of a cache (attention_tile.h), in terms of Vec (row_kernels.inl) and VecMath
// (vec_math_*.inl). Rows of a cache become floats in registers (cache_loads.inl), once for all the queries
// that see them.

// ---- Exponentials

// Below it, exp is less than the smallest normal float and counts as 0.
constexpr float kExpLimit = -87.0f;

// exp(x) for x <= 0, within 2 units in the last place; exactly 1 at 0, 0 at -infinity, NaN at NaN.
// exp(x) = 2^n * exp(r) with |r| <= ln(2) / 2, exp(r) from its Taylor series.
Vec::Type exponential(Vec::Type x) {
    // Added to a number below 2^22, it leaves that number's nearest integer in the low bits.
    const Vec::Type rounder = Vec::broadcast(12582912.0f);
    const Vec::Type power = Vec::fma(x, Vec::broadcast(1.44269504f), rounder);
    const Vec::Type n = VecMath::subtract(power, rounder);
    // ln(2) in two parts: n times the first, of nine bits, is exact.
    Vec::Type r = Vec::fma(n, Vec::broadcast(-0.693359375f), x);
    r = Vec::fma(n, Vec::broadcast(2.12194440e-4f), r);
    Vec::Type sum = Vec::broadcast(1.0f / 5040);
    sum = Vec::fma(sum, r, Vec::broadcast(1.0f / 720));
    sum = Vec::fma(sum, r, Vec::broadcast(1.0f / 120));
    sum = Vec::fma(sum, r, Vec::broadcast(1.0f / 24));
    sum = Vec::fma(sum, r, Vec::broadcast(1.0f / 6));
    sum = Vec::fma(sum, r, Vec::broadcast(0.5f));
    sum = Vec::fma(sum, r, Vec::broadcast(1.0f));
    sum = Vec::fma(sum, r, Vec::broadcast(1.0f));
    return VecMath::unless_below(x, Vec::broadcast(kExpLimit), VecMath::times_power_of_two(sum, power));
}

float exponential(float x) {
    float lanes[Vec::kWidth];
    Vec::store(lanes, exponential(Vec::broadcast(x)));
    return lanes[0];
}

// cap * tanh(x / cap), from exp(-2 |x| / cap)
Vec::Type capped(Vec::Type x, Vec::Type cap) {
    const Vec::Type one = Vec::broadcast(1.0f);
    const Vec::Type ratio = VecMath::divide(VecMath::magnitude(x), cap);
    const Vec::Type e = exponential(VecMath::multiply(Vec::broadcast(-2.0f), ratio));
    const Vec::Type tanh = VecMath::divide(VecMath::subtract(one, e), VecMath::add(one, e));
    return VecMath::with_sign_of(x, VecMath::multiply(cap, tanh));
}

// ---- One tile. Scores lie as (positions, R): those of a position side by side.

constexpr float kNothing = -__builtin_inff();

// Asks for what num_bytes, soon to be read, lie in. level: 3 is the first-level cache, 2 the second.
template <int level>
void fetch(const uint8_t* bytes, int64_t num_bytes) {
    for (int64_t i = 0; i < num_bytes; i += 64) __builtin_prefetch(bytes + i, 0, level);
}

// Adds the products of kWidth elements of R queries and K keys to their sums.
template <class Cached, int R, int K>
void score_step(const float* queries, int64_t length, const uint8_t* const* keys,
                const typename Cached::Scale* scales, int64_t d, Vec::Type* sums) {
    Vec::Type key[K];
    for (int k = 0; k < K; ++k) key[k] = Cached::load(keys[k], d, scales[k]);
    for (int r = 0; r < R; ++r) {
        const Vec::Type query = VecMath::in_register(Vec::load(queries + r * length));
        for (int k = 0; k < K; ++k) sums[k * R + r] = Vec::fma(query, key[k], sums[k * R + r]);
    }
}

// R is 1, 2, 4 or 8. Every score has one accumulator, whatever R is, so its bits do not depend on R.
template <class Cached, int R>
void score(const AttentionTile& t, float* scores) {
    constexpr int kKeys = R < Vec::kWidth ? Vec::kWidth / R : 1;
    const int64_t length = t.keys.length, last = t.num_positions - 1;
    for (int64_t p = 0; p < t.num_positions; p += kKeys) {
        const uint8_t* keys[kKeys];
        for (int k = 0; k < kKeys; ++k) {
            keys[k] = t.keys.rows + (p + k < last ? p + k : last) * t.keys.stride;
            if (t.ahead.values) fetch<3>(t.values.rows + (p + k) * t.values.stride, t.values.stride);
            if (t.ahead.later_keys) fetch<2>(t.ahead.later_keys + (p + k) * t.keys.stride, t.keys.stride);
        }
        Vec::Type sums[kKeys * R];
        for (int i = 0; i < kKeys * R; ++i) sums[i] = Vec::zero();
        for (int64_t block = 0; block < length; block += Cached::kBlock) {
            typename Cached::Scale scales[kKeys];
            for (int k = 0; k < kKeys; ++k) scales[k] = Cached::scale(keys[k], block);
            for (int64_t i = 0; i < Cached::kBlock; i += Vec::kWidth)
                score_step<Cached, R, kKeys>(t.queries + block + i, length, keys, scales, block + i, sums);
        }
        for (int i = 0; i < kKeys * R; i += Vec::kWidth)
            Vec::store(scores + p * R + i, VecMath::sums(sums + i));
    }
}

void cap(const AttentionTile& t, float* scores, int64_t count) {
    if (t.soft_cap == 0) return;
    const Vec::Type limit = Vec::broadcast(t.soft_cap);
    for (int64_t i = 0; i < count; i += Vec::kWidth)
        Vec::store(scores + i, capped(Vec::load(scores + i), limit));
}

// What a row does not see, and what fills the last vector, scores -infinity.
template <int R>
void hide(const AttentionTile& t, float* scores, int64_t count) {
    for (int64_t i = t.num_positions * R; i < count; ++i) scores[i] = kNothing;
    for (int r = 0; r < R; ++r) {
        for (int64_t p = 0; p < t.begins[r]; ++p) scores[p * R + r] = kNothing;
        for (int64_t p = t.ends[r]; p < t.num_positions; ++p) scores[p * R + r] = kNothing;
    }
}

// What exp's argument is taken relative to: the largest score, or 0 where there is none yet.
float origin_of(float largest) { return largest == kNothing ? 0.0f : largest; }

// Turns scores into exponentials, and gives what the state so far is to be multiplied with.
template <int R>
void soften(const AttentionTile& t, float* scores, int64_t count, float* factors) {
    constexpr int kLanes = R < Vec::kWidth ? Vec::kWidth : R;  // the rows' pattern, repeated
    float lanes[kLanes];
    for (int first = 0; first < kLanes; first += Vec::kWidth) {
        Vec::Type largest = Vec::broadcast(kNothing);
        for (int64_t i = first; i < count; i += kLanes)
            largest = VecMath::maximum(largest, Vec::load(scores + i));
        Vec::store(lanes + first, largest);
    }
    float origins[R];
    for (int r = 0; r < R; ++r) {
        float largest = t.state.maxima[r];
        for (int i = r; i < kLanes; i += R) largest = lanes[i] > largest ? lanes[i] : largest;
        origins[r] = origin_of(largest);
        factors[r] = exponential(t.state.maxima[r] - origins[r]);
        t.state.maxima[r] = largest;
    }
    for (int i = 0; i < kLanes; ++i) lanes[i] = origins[i % R];
    for (int first = 0; first < kLanes; first += Vec::kWidth) {
        const Vec::Type origin = Vec::load(lanes + first);
        for (int64_t i = first; i < count; i += kLanes)
            Vec::store(scores + i, exponential(VecMath::subtract(Vec::load(scores + i), origin)));
    }
    float sums[R] = {};
    for (int64_t p = 0; p < t.num_positions; ++p)
        for (int r = 0; r < R; ++r) sums[r] += scores[p * R + r];
    for (int r = 0; r < R; ++r) t.state.sums[r] = t.state.sums[r] * factors[r] + sums[r];
}

// What is asked for while positions are mixed: rows that follow each other, each pass over `count` of
// `length` elements asking for as large a part of them.
class MixAhead {
  public:
    MixAhead(const uint8_t* rows, int64_t stride, int64_t num_rows, int64_t d, int64_t count, int64_t length)
        : rows_(rows + d * num_rows * stride / length), bytes_(rows ? count * stride / length : 0) {}

    template <int level>
    void fetch_for(int64_t position) const {
        fetch<level>(rows_ + position * bytes_, bytes_);
    }

  private:
    const uint8_t* rows_;
    int64_t bytes_;
};

// N vectors of every row's mixed values, from element d on.
template <class Cached, int R, int N>
void mix_part(const AttentionTile& t, const float* shares, const float* factors, int64_t d) {
    const int64_t length = t.values.length;
    float* mixed = t.state.mixed + d;
    Vec::Type sums[R][N];
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n)
            sums[r][n] = VecMath::multiply(Vec::broadcast(factors[r]),
                                           Vec::load(mixed + r * length + n * Vec::kWidth));
    const uint8_t* row = t.values.rows;
    const MixAhead next_keys(t.ahead.next_keys, t.keys.stride, t.num_positions, d, N * Vec::kWidth, length);
    const MixAhead later(t.ahead.later_values, t.values.stride, t.num_positions, d, N * Vec::kWidth, length);
    for (int64_t p = 0; p < t.num_positions; ++p, row += t.values.stride) {
        next_keys.fetch_for<3>(p);
        later.fetch_for<2>(p);
        Vec::Type value[N];
        typename Cached::Scale scale = Cached::scale(row, d);
        for (int n = 0; n < N; ++n) {
            if (n > 0 && n * Vec::kWidth % Cached::kBlock == 0)
                scale = Cached::scale(row, d + n * Vec::kWidth);
            value[n] = VecMath::in_register(Cached::load(row, d + n * Vec::kWidth, scale));
        }
        for (int r = 0; r < R; ++r) {
            const Vec::Type share = VecMath::in_register(Vec::broadcast(shares[p * R + r]));
            for (int n = 0; n < N; ++n) sums[r][n] = Vec::fma(share, value[n], sums[r][n]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) Vec::store(mixed + r * length + n * Vec::kWidth, sums[r][n]);
}

template <class Cached, int R>
void mix(const AttentionTile& t, const float* shares, const float* factors) {
    constexpr int kAccumulators = Vec::kWidth == 16 ? 16 : 8;  // AVX-512 has twice the registers
    constexpr int N = R == 1 ? 8 : kAccumulators / R;
    int64_t d = 0;
    for (; d + N * Vec::kWidth <= t.values.length; d += N * Vec::kWidth)
        mix_part<Cached, R, N>(t, shares, factors, d);
    for (; d < t.values.length; d += Vec::kWidth) mix_part<Cached, R, 1>(t, shares, factors, d);
}

template <class Cached, int R>
void attend_rows(const AttentionTile& t) {
    alignas(64) float scores[kMaxTilePositions * R];
    constexpr int64_t kLanes = R < Vec::kWidth ? Vec::kWidth : R;
    const int64_t count = (t.num_positions * R + kLanes - 1) / kLanes * kLanes;
    float factors[R];
    score<Cached, R>(t, scores);
    cap(t, scores, count);
    hide<R>(t, scores, count);
    soften<R>(t, scores, count, factors);
    mix<Cached, R>(t, scores, factors);
}

template <class Cached>
void attend_tile(const AttentionTile& t) {
    switch (t.num_rows) {
        case 1:
            return attend_rows<Cached, 1>(t);
        case 2:
            return attend_rows<Cached, 2>(t);
        case 4:
            return attend_rows<Cached, 4>(t);
        default:
            return attend_rows<Cached, 8>(t);
    }
}

// ---- States

void merge_rows(const MixedRows& part, const MixedRows& total, int64_t num_rows, int64_t length) {
    for (int64_t r = 0; r < num_rows; ++r) {
        const float was = total.maxima[r], other = part.maxima[r];
        total.maxima[r] = other > was ? other : was;
        const float origin = origin_of(total.maxima[r]);
        const float keep = exponential(was - origin), take = exponential(other - origin);
        total.sums[r] = total.sums[r] * keep + part.sums[r] * take;
        float* mixed = total.mixed + r * length;
        for (int64_t i = 0; i < length; i += Vec::kWidth) {
            const Vec::Type kept = VecMath::multiply(Vec::broadcast(keep), Vec::load(mixed + i));
            const Vec::Type taken = Vec::load(part.mixed + r * length + i);
            Vec::store(mixed + i, Vec::fma(Vec::broadcast(take), taken, kept));
        }
    }
}

void finish_row(const MixedRows& row, float sink, float* out, int64_t length) {
    const float origin = origin_of(sink > *row.maxima ? sink : *row.maxima);
    const float keep = exponential(*row.maxima - origin);
    const Vec::Type scale = Vec::broadcast(keep / (*row.sums * keep + exponential(sink - origin)));
    int64_t i = 0;
    for (; i + Vec::kWidth <= length; i += Vec::kWidth)
        Vec::store(out + i, VecMath::multiply(scale, Vec::load(row.mixed + i)));
    if (i < length) Vec::store_first(out + i, VecMath::multiply(scale, Vec::load(row.mixed + i)), length - i);
}

void fill_attention(RowKernels& table) {
    table.attend_tile[F32] = attend_tile<CachedF32>;
    table.attend_tile[F16] = attend_tile<CachedF16>;
    table.attend_tile[BF16] = attend_tile<CachedBF16>;
    table.attend_tile[Q8_0] = attend_tile<CachedQ8_0>;
    table.merge_rows = merge_rows;
    table.finish_row = finish_row;
}
