#include "elementwise.h"

#include <cmath>

namespace ktdesk {

void rms_norm(WorkerPool& pool, const float* x, const float* weight, float epsilon, int64_t num_rows,
              int64_t length, float* out) {
    pool.run(num_rows, [&](int64_t r, int) {
        const float* row = x + r * length;
        double squares = 0;
        for (int64_t i = 0; i < length; ++i) squares += static_cast<double>(row[i]) * row[i];
        const float scale =
            static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(length) + epsilon));
        for (int64_t i = 0; i < length; ++i) out[r * length + i] = row[i] * scale * weight[i];
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

}  // namespace ktdesk
