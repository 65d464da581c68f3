// What the CPU computes of a layer whose other parts an accelerator computes; and which experts of a token
// may wait for the next layer.
#pragma once

#include <cstdint>
#include <vector>

#include "expert_mlp.h"
#include "handoff.h"

namespace ktdesk {

// Of what the router chose: which experts of a token are not computed at once.
struct SplitRule {
    const int32_t*
        slot_of_expert;    // (num_experts): at least 0 for those that lie on the accelerator; or null
    int64_t num_deferred;  // of the smallest weights, but at least kMinImmediate others stay
};
constexpr int64_t kMinImmediate = 2;

// The same shape as routing.ids: ids, and kNoExpert where the pair is not of this part.
struct SplitIds {
    int32_t* immediate;
    int32_t* deferred;
    int64_t num_deferred = 0;  // pairs of all tokens
};

// Fills split. Experts on the accelerator are in neither part. Among equal weights the later one is deferred.
void split_routes(const Routing& routing, const SplitRule& rule, SplitIds& split);

// Adds one to counts (num_experts) for each pair that has an expert.
void count_use(const Routing& routing, int64_t* counts);

// One layer of a step, on the CPU's side. Deferred experts are computed once the layer's output is handed
// over, and come with the output of the next layer; the last layer defers nothing.
struct CpuShare {
    HandOff& hand_off;
    int64_t layer, num_tokens;
    ExpertMlp mlp;
    const int32_t* slot_of_expert;  // (num_experts)
    int64_t* counts;                // (num_experts)
    const int32_t* num_deferred;    // read in each step; null: none
    float* pending;                 // (num_tokens, H): what the layer before deferred
    int32_t* has_pending;           // whether it did
    std::vector<int32_t> split_ids = {};

    Routing routing() const {
        const HandOff::Area area = hand_off.area(layer);
        return {area.ids, area.weights, num_tokens, hand_off.num_used};
    }
};

// Waits for the accelerator. Throws HandOffError, or what the experts throw.
void run_cpu_share(WorkerPool& pool, CpuShare& share);

}  // namespace ktdesk
