// The feed-forward network of a layer: routed experts, or one dense network as the only expert.
#pragma once

#include <cstdint>

#include "linear.h"

namespace ktdesk {

// One weight of all experts: that of expert e lies expert_bytes * e further. Its products are multiplied by
// the expert's scale, then its bias is added.
struct ExpertMatrix {
    Matrix first;
    int64_t expert_bytes;
    const float* bias;             // (num_experts, num_rows), or null
    const float* scale = nullptr;  // (num_experts), or null

    Matrix expert(int64_t e) const {
        Matrix matrix = first;
        matrix.rows += e * expert_bytes;
        return matrix;
    }
};

struct ExpertMlp {
    ExpertMatrix gate, up;  // (num_experts, I, H)
    ExpertMatrix down;      // (num_experts, H, I)
    int64_t num_experts;
    ActivationRule activation;
    bool weighs_inputs = false;  // a token is multiplied by its weight before the network, not after it
};

// In place of an expert's id: this one is computed elsewhere.
constexpr int32_t kNoExpert = -1;

// Which experts a batch uses. ids: (num_tokens, num_used), each in 0..num_experts-1 or kNoExpert; weights the
// same shape.
struct Routing {
    const int32_t* ids;
    const float* weights;
    int64_t num_tokens;
    int64_t num_used;

    bool has_expert(int64_t pair) const { return ids[pair] != kNoExpert; }
};

// Throws std::invalid_argument where an id is neither of an expert nor kNoExpert.
void check_experts(const Routing& routing, int64_t num_experts);

// out[t] = sum over j of weights[t, j] * down(activation(gate x[t], up x[t])) of expert ids[t, j], added in
// the order of j; without those that have no expert. x and out: (num_tokens, H). The tokens of an expert are
// computed together: on tiles where there are at least pool.tuning.min_tile_rows of them, else on vectors.
void expert_mlp(WorkerPool& pool, const ExpertMlp& mlp, const Routing& routing, const float* x, float* out);

}  // namespace ktdesk
