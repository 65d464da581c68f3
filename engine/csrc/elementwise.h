// Norms, rotary positions, and what is done element by element.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

// Vectors of one length, the first elements of which are `stride` apart.
template <class Element>
struct Rows {
    Element* data;
    int64_t stride;

    Element* row(int64_t r) const { return data + r * stride; }
};

// out[r] = x[r] / sqrt(mean(x[r]^2) + epsilon) * weight; weight: (length). out may be x.
void rms_norm(WorkerPool& pool, const Rows<const float>& x, const float* weight, float epsilon,
              int64_t num_rows, int64_t length, const Rows<float>& out);

// out = x + y, (num_rows, length) each. out may be either.
void add(WorkerPool& pool, const float* x, const float* y, int64_t num_rows, int64_t length, float* out);

// out[r] = sigmoid(gates[r]) * x[r]. x and out: (num_rows, length).
void gate(WorkerPool& pool, const float* x, const float* gates, int64_t num_rows, int64_t length, float* out);

// Vectors that lie in two dimensions: element i of the vector of head h of token t is
// data[t * token_stride + h * head_stride + i].
struct Heads {
    const float* data;
    int64_t token_stride, head_stride;
    int64_t length;
};

// out (num_tokens, num_heads, first.length + second.length): of each head the first vector, then the second.
void join_heads(WorkerPool& pool, const Heads& first, const Heads& second, int64_t num_tokens,
                int64_t num_heads, float* out);

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

// Cosines and sines of position * frequency, times the magnitude, computed in double. frequencies:
// (num_pairs); cosines and sines: (num_tokens, num_pairs).
struct Turns {
    const int32_t* positions;
    const double* frequencies;
    double magnitude;
    int64_t num_tokens, num_pairs;
    float* cosines;
    float* sines;
};

void turns(WorkerPool& pool, const Turns& t);

}  // namespace ktdesk
