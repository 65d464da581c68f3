// The row kernels in terms of one vector type. An ISA file defines, before it includes this:
//   struct Vec { kWidth; zero(); broadcast(float); load(p); load_first(p, n); store(p, v);
//                store_first(p, v, n); fma(a, b, sum); sum(v) }
//   kTileRows, kTileTokens: accumulators held in registers, kTileRows * kTileTokens of them.
// load_first and store_first touch only n < kWidth floats, and load_first gives zeros behind them.

// One tile: R rows by T tokens, one accumulator each.
template <int R, int T>
void matmul_tile(const float* weights, int64_t length, const float* const* inputs, float* const* outputs,
                 int64_t first_row) {
    Vec::Type sums[R][T];
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) sums[r][t] = Vec::zero();
    int64_t k = 0;
    for (; k + Vec::kWidth <= length; k += Vec::kWidth) {
        Vec::Type x[T];
        for (int t = 0; t < T; ++t) x[t] = Vec::load(inputs[t] + k);
        for (int r = 0; r < R; ++r) {
            const Vec::Type w = Vec::load(weights + r * length + k);
            for (int t = 0; t < T; ++t) sums[r][t] = Vec::fma(w, x[t], sums[r][t]);
        }
    }
    if (k < length) {
        const int64_t rest = length - k;
        for (int r = 0; r < R; ++r) {
            const Vec::Type w = Vec::load_first(weights + r * length + k, rest);
            for (int t = 0; t < T; ++t)
                sums[r][t] = Vec::fma(w, Vec::load_first(inputs[t] + k, rest), sums[r][t]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) outputs[t][first_row + r] = Vec::sum(sums[r][t]);
}

template <int T>
void matmul_tokens(const float* weights, int64_t num_rows, int64_t length, const float* const* inputs,
                   float* const* outputs, int64_t first_row) {
    int64_t row = 0;
    for (; row + kTileRows <= num_rows; row += kTileRows)
        matmul_tile<kTileRows, T>(weights + row * length, length, inputs, outputs, first_row + row);
    for (; row < num_rows; ++row)
        matmul_tile<1, T>(weights + row * length, length, inputs, outputs, first_row + row);
}

void matmul(const float* weights, int64_t num_rows, int64_t length, const float* const* inputs,
            int64_t num_tokens, float* const* outputs, int64_t first_row) {
    int64_t t = 0;
    for (; t + kTileTokens <= num_tokens; t += kTileTokens)
        matmul_tokens<kTileTokens>(weights, num_rows, length, inputs + t, outputs + t, first_row);
    for (; t < num_tokens; ++t)
        matmul_tokens<1>(weights, num_rows, length, inputs + t, outputs + t, first_row);
}

void add_scaled(float scale, const float* x, float* sum, int64_t length) {
    const Vec::Type factor = Vec::broadcast(scale);
    int64_t k = 0;
    for (; k + Vec::kWidth <= length; k += Vec::kWidth)
        Vec::store(sum + k, Vec::fma(factor, Vec::load(x + k), Vec::load(sum + k)));
    if (k < length) {
        const int64_t rest = length - k;
        Vec::store_first(
            sum + k, Vec::fma(factor, Vec::load_first(x + k, rest), Vec::load_first(sum + k, rest)), rest);
    }
}

RowKernels make_table(const char* name) {
    RowKernels table = {};
    table.name = name;
    fill_dequantize(table.dequantize);
    fill_pack_panel(table.pack_panel);
    fill_multiply_panel(table.multiply_panel);
    fill_multiply_float_panel(table.multiply_float_panel);
    fill_attention(table);
    fill_store_row(table);
    fill_probes(table);
    table.matmul = matmul;
    table.quantize_row = quantize_row;
    table.activate = activate;
    table.add_scaled = add_scaled;
    return table;
}
