#include "routing.h"

#include <algorithm>
#include <cmath>

namespace ktdesk {

namespace {

// What a sum of weights is at least taken to be: the smallest normal float16.
constexpr float kSmallestSum = 6.103515625e-5f;

// Stands for "may not be chosen". Below -inf there is nothing, so a flag tells the two apart.
struct Candidate {
    float selection;
    bool is_open;
};

void softmax(float* values, int64_t count) {
    const float largest = *std::max_element(values, values + count);
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        values[i] = std::exp(values[i] - largest);
        sum += values[i];
    }
    for (int64_t i = 0; i < count; ++i) values[i] /= sum;
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Of the open candidates the best, the first among equals; a number that is none loses to the first.
int64_t take_best(Candidate* candidates, int64_t count) {
    int64_t best = -1;
    for (int64_t i = 0; i < count; ++i)
        if (candidates[i].is_open && (best < 0 || candidates[i].selection > candidates[best].selection))
            best = i;
    candidates[best].is_open = false;
    return best;
}

// The sum of the two largest of a group; of a group of one, the one.
float quality(const Candidate* group, int64_t count) {
    float first = -INFINITY, second = count > 1 ? -INFINITY : 0.0f;
    for (int64_t i = 0; i < count; ++i) {
        const float value = group[i].selection;
        if (value > first) {
            second = count > 1 ? first : second;
            first = value;
        } else if (value > second && count > 1) {
            second = value;
        }
    }
    return first + second;
}

void close_all_but_best_groups(const RoutingRule& rule, Candidate* candidates, Candidate* groups) {
    const int64_t size = rule.num_experts / rule.num_groups;
    for (int64_t g = 0; g < rule.num_groups; ++g) groups[g] = {quality(candidates + g * size, size), true};
    for (int64_t i = 0; i < rule.num_experts; ++i) candidates[i].is_open = false;
    for (int64_t used = 0; used < rule.num_groups_used; ++used) {
        Candidate* group = candidates + take_best(groups, rule.num_groups) * size;
        for (int64_t i = 0; i < size; ++i) group[i].is_open = true;
    }
}

// scores: (num_experts), scratch that holds the logits. candidates: num_experts + num_groups.
void choose(const RoutingRule& rule, const float* bias, float* scores, Candidate* candidates, int32_t* ids,
            float* weights) {
    if (rule.gating == Gating::kSoftmax) softmax(scores, rule.num_experts);
    if (rule.gating == Gating::kSigmoid)
        for (int64_t i = 0; i < rule.num_experts; ++i) scores[i] = sigmoid(scores[i]);
    for (int64_t i = 0; i < rule.num_experts; ++i)
        candidates[i] = {scores[i] + (bias ? bias[i] : 0.0f), true};
    if (rule.num_groups > 1) close_all_but_best_groups(rule, candidates, candidates + rule.num_experts);
    for (int64_t j = 0; j < rule.num_used; ++j) {
        ids[j] = static_cast<int32_t>(take_best(candidates, rule.num_experts));
        weights[j] = scores[ids[j]];
    }
    if (rule.gating == Gating::kSoftmaxOfChosen) softmax(weights, rule.num_used);
    float divisor = 1;
    if (rule.normalize) {
        float sum = 0;
        for (int64_t j = 0; j < rule.num_used; ++j) sum += weights[j];
        divisor = std::max(sum, kSmallestSum);
    }
    for (int64_t j = 0; j < rule.num_used; ++j) weights[j] = weights[j] / divisor * rule.scale;
}

}  // namespace

void choose_experts(WorkerPool& pool, const RoutingRule& rule, const float* logits, const float* bias,
                    int64_t num_tokens, int32_t* ids, float* weights) {
    static_assert(sizeof(Candidate) == 2 * sizeof(float), "the scratch is counted in floats");
    pool.reserve_scratch(3 * rule.num_experts + 2 * rule.num_groups);
    pool.run(num_tokens, [&](int64_t t, int thread) {
        float* scores = pool.scratch(thread);
        std::copy_n(logits + t * rule.num_experts, rule.num_experts, scores);
        choose(rule, bias, scores, reinterpret_cast<Candidate*>(scores + rule.num_experts),
               ids + t * rule.num_used, weights + t * rule.num_used);
    });
}

}  // namespace ktdesk
