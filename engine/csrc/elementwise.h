// Norms and rotary positions.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

// out[r] = x[r] / sqrt(mean(x[r]^2) + epsilon) * weight. x and out: (num_rows, length); weight: (length).
// out may be x.
void rms_norm(WorkerPool& pool, const float* x, const float* weight, float epsilon, int64_t num_rows,
              int64_t length, float* out);

enum class RopePairing : int {
    kNeighbours = 0,  // element 2i turns with 2i + 1 ("normal")
    kHalves = 1,      // element i turns with i + num_pairs ("neox")
};

// Turns the first 2 * num_pairs elements of each head in place. x: (num_tokens, num_heads, D) with these
// strides; cosines and sines: (num_tokens, num_pairs).
struct Rope {
    float* x;
    int64_t num_tokens, num_heads;
    int64_t token_stride, head_stride;
    const float* cosines;
    const float* sines;
    int64_t num_pairs;
    RopePairing pairing;
};

void rope(WorkerPool& pool, const Rope& r);

}  // namespace ktdesk
