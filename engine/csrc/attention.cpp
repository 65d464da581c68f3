#include "attention.h"

#include <algorithm>
#include <cmath>

namespace ktdesk {

namespace {

// Heads that share a key head are computed in groups of at most this many: each key row is then read once for
// the group, and a single token with many heads still occupies all threads.
constexpr int64_t kHeadsPerTask = 4;

struct Span {
    int64_t begin, end;  // positions
    int64_t count() const { return end - begin; }
};

Span visible(const Attention& a, int64_t t) {
    const int64_t end = a.positions[t] + 1;
    return {a.window > 0 ? std::max<int64_t>(0, end - a.window) : 0, end};
}

const float* row_at(const PagedRows& rows, const Attention& a, int64_t t, int64_t position, int64_t kv_head) {
    const int64_t page = a.page_tables[a.sequences[t] * a.max_pages + position / a.page_size];
    return rows.data + page * rows.page_stride + position % a.page_size * rows.token_stride +
           kv_head * rows.head_stride;
}

float capped(const Attention& a, float score) {
    return a.soft_cap > 0 ? a.soft_cap * std::tanh(score / a.soft_cap) : score;
}

// Turns scores into exponentials against their maximum and returns 1 / their sum, the sink included.
float exponentiate(float* scores, int64_t count, const float* sink) {
    float largest = sink ? *sink : scores[0];
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, scores[i]);
    double sum = sink ? std::exp(*sink - largest) : 0.0;
    for (int64_t i = 0; i < count; ++i) {
        scores[i] = std::exp(scores[i] - largest);
        sum += scores[i];
    }
    return static_cast<float>(1.0 / sum);
}

// Heads first..last-1 of token t, which share kv_head. scores: (heads, visible positions).
void attend(const RowKernels& kernels, const Attention& a, int64_t t, int64_t kv_head, int64_t first,
            int64_t last, float* scores) {
    const Span span = visible(a, t);
    const float* queries = a.queries + t * a.num_heads * a.keys.length;
    float* out = a.out + t * a.num_heads * a.values.length;
    for (int64_t p = span.begin; p < span.end; ++p) {
        const float* key = row_at(a.keys, a, t, p, kv_head);
        for (int64_t h = first; h < last; ++h) {
            const float score = a.scale * kernels.dot(queries + h * a.keys.length, key, a.keys.length);
            scores[(h - first) * span.count() + p - span.begin] = capped(a, score);
        }
    }
    float inverse_sums[kHeadsPerTask];
    for (int64_t h = first; h < last; ++h) {
        inverse_sums[h - first] =
            exponentiate(scores + (h - first) * span.count(), span.count(), a.sinks ? a.sinks + h : nullptr);
        std::fill(out + h * a.values.length, out + (h + 1) * a.values.length, 0.0f);
    }
    for (int64_t p = span.begin; p < span.end; ++p) {
        const float* value = row_at(a.values, a, t, p, kv_head);
        for (int64_t h = first; h < last; ++h)
            kernels.add_scaled(scores[(h - first) * span.count() + p - span.begin] * inverse_sums[h - first],
                               value, out + h * a.values.length, a.values.length);
    }
}

}  // namespace

void attention(WorkerPool& pool, const Attention& a) {
    int64_t longest = 0;
    for (int64_t t = 0; t < a.num_tokens; ++t) longest = std::max(longest, visible(a, t).count());
    pool.reserve_scratch(kHeadsPerTask * longest);

    const int64_t group = a.num_heads / a.num_kv_heads;
    const int64_t parts = (group + kHeadsPerTask - 1) / kHeadsPerTask;
    pool.run(a.num_tokens * a.num_kv_heads * parts, [&](int64_t task, int thread) {
        const int64_t t = task / (a.num_kv_heads * parts);
        const int64_t kv_head = task / parts % a.num_kv_heads;
        const int64_t first = task % parts * kHeadsPerTask;
        const int64_t last = std::min(first + kHeadsPerTask, group);
        attend(pool.kernels(), a, t, kv_head, kv_head * group + first, kv_head * group + last,
               pool.scratch(thread));
    });
}

}  // namespace ktdesk
