#include "elementwise.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace ktdesk {

namespace {

constexpr int64_t kTaskValues = 2048;  // what a task is worth being taken for

// In eight sums side by side: one alone would wait for each addition.
double sum_of_squares(const float* x, int64_t length) {
    double sums[8] = {};
    int64_t i = 0;
    for (; i + 8 <= length; i += 8)
        for (int64_t lane = 0; lane < 8; ++lane)
            sums[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
    for (; i < length; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace

void rms_norm(WorkerPool& pool, const Rows<const float>& x, const float* weight, float epsilon,
              int64_t num_rows, int64_t length, const Rows<float>& out) {
    const auto norm_row = [&](int64_t r) {
        const float* row = x.row(r);
        float* normed = out.row(r);
        const double mean = sum_of_squares(row, length) / static_cast<double>(length);
        const float scale = static_cast<float>(1.0 / std::sqrt(mean + epsilon));
        for (int64_t i = 0; i < length; ++i) normed[i] = row[i] * scale * weight[i];
    };
    // Rows may be heads: several to a task.
    const int64_t rows_per_task = std::max<int64_t>(kTaskValues / std::max<int64_t>(length, 1), 1);
    pool.run((num_rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
        const int64_t end = std::min((task + 1) * rows_per_task, num_rows);
        for (int64_t r = task * rows_per_task; r < end; ++r) norm_row(r);
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
