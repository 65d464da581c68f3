// Products of panels of 16-bit floats (panels.h) with floats, in terms of Vec and VecMath.

struct PanelF16 {
    static Vec::Type load(const uint8_t* p) { return VecMath::load_f16(p); }
};

struct PanelBF16 {
    static Vec::Type load(const uint8_t* p) { return VecMath::load_bf16(p); }
};

constexpr int kRowVectors = static_cast<int>(kPanelRows / Vec::kWidth);

// Each row has two sums, of even and of odd values, so that a product need not wait for the one before it.
// More than 8 tokens at once would run out of registers for their addresses.
constexpr int kSumsOfTwo = static_cast<int>(kTileRows * kTileTokens) / (2 * kRowVectors);
constexpr int kFloatPanelTokens = kSumsOfTwo < 8 ? kSumsOfTwo : 8;

// One panel with T rows of x. results[t] gets the panel's 16 products.
template <class Panel, int T>
void float_panel_tile(const uint8_t* panel, int64_t length, const float* const* inputs,
                      float (*results)[kPanelRows]) {
    Vec::Type sums[2][T][kRowVectors];
    for (int i = 0; i < 2; ++i)
        for (int t = 0; t < T; ++t)
            for (int v = 0; v < kRowVectors; ++v) sums[i][t][v] = Vec::zero();
    for (int64_t k = 0; k < length; k += 2, panel += kCacheLine) {
        __builtin_prefetch(panel + kNear, 0, 3);
        __builtin_prefetch(panel + kFar, 0, 2);
        for (int i = 0; i < 2; ++i)
            for (int v = 0; v < kRowVectors; ++v) {
                const Vec::Type w = Panel::load(panel + 2 * (kPanelRows * i + Vec::kWidth * v));
                for (int t = 0; t < T; ++t)
                    sums[i][t][v] = Vec::fma(w, Vec::broadcast(inputs[t][k + i]), sums[i][t][v]);
            }
    }
    for (int t = 0; t < T; ++t)
        for (int v = 0; v < kRowVectors; ++v)
            Vec::store(results[t] + Vec::kWidth * v, VecMath::add(sums[0][t][v], sums[1][t][v]));
}

template <class Panel, int T>
int64_t float_panel_tokens(const uint8_t* panel, int64_t length, const float* const* inputs, int64_t t,
                           int64_t num_tokens, float* const* outputs, int64_t first_row, int64_t num_rows) {
    alignas(64) float results[T][kPanelRows];
    for (; t + T <= num_tokens; t += T) {
        float_panel_tile<Panel, T>(panel, length, inputs + t, results);
        for (int i = 0; i < T; ++i)
            memcpy(outputs[t + i] + first_row, results[i], static_cast<size_t>(num_rows) * sizeof(float));
    }
    return t;
}

template <class Panel>
void multiply_float_panel(const uint8_t* panel, int64_t length, const float* const* inputs,
                          int64_t num_tokens, float* const* outputs, int64_t first_row, int64_t num_rows) {
    constexpr int kMany = kFloatPanelTokens, kFew = kMany > 1 ? kMany / 2 : 1;
    int64_t t =
        float_panel_tokens<Panel, kMany>(panel, length, inputs, 0, num_tokens, outputs, first_row, num_rows);
    t = float_panel_tokens<Panel, kFew>(panel, length, inputs, t, num_tokens, outputs, first_row, num_rows);
    float_panel_tokens<Panel, 1>(panel, length, inputs, t, num_tokens, outputs, first_row, num_rows);
}

void fill_multiply_float_panel(MultiplyFloatPanel* table) {
    table[F16] = multiply_float_panel<PanelF16>;
    table[BF16] = multiply_float_panel<PanelBF16>;
}
