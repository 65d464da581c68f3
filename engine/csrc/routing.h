// Which experts a token goes to, and with what weight.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

enum class Gating : int {
    kSoftmax = 1,
    kSigmoid = 2,
    kSoftmaxOfChosen = 3,  // choose on the logits, then softmax over the chosen
};

struct RoutingRule {
    int64_t num_experts, num_used;
    Gating gating;
    bool normalize;  // divide the chosen weights by their sum
    float scale;
    int64_t num_groups, num_groups_used;  // only experts of the best groups may be chosen; 1 and 1: of all
};

// logits: (num_tokens, num_experts). bias: (num_experts), for choosing only, or null. ids and weights:
// (num_tokens, num_used), the best expert first, the lower id first among equals. Logits that are no numbers
// choose experts that exist.
void choose_experts(WorkerPool& pool, const RoutingRule& rule, const float* logits, const float* bias,
                    int64_t num_tokens, int32_t* ids, float* weights);

}  // namespace ktdesk
