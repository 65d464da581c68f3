#include "elementwise.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace ktdesk {

void rms_norm(WorkerPool& pool, const Rows<const float>& x, const float* weight, float epsilon,
              int64_t num_rows, int64_t length, const Rows<float>& out) {
    pool.run(num_rows, [&](int64_t r, int) {
        const float* row = x.row(r);
        float* normed = out.row(r);
        double squares = 0;
        for (int64_t i = 0; i < length; ++i) squares += static_cast<double>(row[i]) * row[i];
        const float scale =
            static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(length) + epsilon));
        for (int64_t i = 0; i < length; ++i) normed[i] = row[i] * scale * weight[i];
    });
}

void add(WorkerPool& pool, const float* x, const float* y, int64_t num_rows, int64_t length, float* out) {
    pool.run(num_rows, [&](int64_t r, int) {
        for (int64_t i = r * length; i < (r + 1) * length; ++i) out[i] = x[i] + y[i];
    });
}

void gate(WorkerPool& pool, const float* x, const float* gates, int64_t num_rows, int64_t length,
          float* out) {
    pool.run(num_rows, [&](int64_t r, int) {
        // Of a large negative gate exp is infinite, and the sigmoid 0.
        const float share = 1.0f / (1.0f + std::exp(-gates[r]));
        for (int64_t i = r * length; i < (r + 1) * length; ++i) out[i] = share * x[i];
    });
}

void join_heads(WorkerPool& pool, const Heads& first, const Heads& second, int64_t num_tokens,
                int64_t num_heads, float* out) {
    const int64_t length = first.length + second.length;
    pool.run(num_tokens, [&](int64_t t, int) {
        for (int64_t h = 0; h < num_heads; ++h) {
            float* joined = out + (t * num_heads + h) * length;
            for (const Heads* part : {&first, &second}) {
                const float* vector = part->data + t * part->token_stride + h * part->head_stride;
                joined = std::copy(vector, vector + part->length, joined);
            }
        }
    });
}

void rope(WorkerPool& pool, const Rope& r) {
    const bool neighbours = r.pairing == RopePairing::kNeighbours;
    const int64_t step = neighbours ? 2 : 1, partner = neighbours ? 1 : r.num_pairs;
    pool.run(r.num_tokens, [&](int64_t t, int) {
        const float* cosines = r.cosines + t * r.num_pairs;
        const float* sines = r.sines + t * r.num_pairs;
        for (int64_t h = 0; h < r.num_heads; ++h) {
            float* head = r.x + t * r.token_stride + h * r.head_stride;
            for (int64_t i = 0; i < r.num_pairs; ++i) {
                const float a = head[step * i], b = head[step * i + partner];
                head[step * i] = a * cosines[i] - b * sines[i];
                head[step * i + partner] = a * sines[i] + b * cosines[i];
            }
        }
    });
}

void turns(WorkerPool& pool, const Turns& t) {
    pool.run(t.num_tokens, [&](int64_t token, int) {
        for (int64_t i = 0; i < t.num_pairs; ++i) {
            const double angle = t.positions[token] * t.frequencies[i];
            t.cosines[token * t.num_pairs + i] = static_cast<float>(std::cos(angle) * t.magnitude);
            t.sines[token * t.num_pairs + i] = static_cast<float>(std::sin(angle) * t.magnitude);
        }
    });
}

}  // namespace ktdesk
