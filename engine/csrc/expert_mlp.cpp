#include "expert_mlp.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ktdesk {

namespace {

float silu(float x) { return x / (1.0f + std::exp(-x)); }

float swiglu_oai(float gate, float up) {
    constexpr float kLimit = 7.0f, kSteepness = 1.702f;
    const float g = std::min(gate, kLimit);
    const float u = std::min(std::max(up, -kLimit), kLimit);
    return g / (1.0f + std::exp(-kSteepness * g)) * (u + 1.0f);
}

float activate(Activation activation, float gate, float up) {
    return activation == Activation::kSwiGlu ? silu(gate) * up : swiglu_oai(gate, up);
}

// A pair is one token at one of its experts: index token * num_used + j. The groups are the pairs sorted by
// expert; slot s of the sorted list is row s of the intermediate results.
struct Group {
    int64_t expert;
    int64_t begin, end;  // slots
};

// Fills pairs (slot -> pair) and returns the experts that have any.
std::vector<Group> group_by_expert(const Routing& routing, int64_t num_experts, int64_t* pairs) {
    const int64_t num_pairs = routing.num_tokens * routing.num_used;
    std::vector<int64_t> next(static_cast<size_t>(num_experts), 0);
    for (int64_t pair = 0; pair < num_pairs; ++pair) ++next[static_cast<size_t>(routing.ids[pair])];
    std::vector<Group> groups;
    int64_t slot = 0;
    for (int64_t e = 0; e < num_experts; ++e) {
        const int64_t count = next[static_cast<size_t>(e)];
        next[static_cast<size_t>(e)] = slot;
        if (count > 0) groups.push_back({e, slot, slot + count});
        slot += count;
    }
    for (int64_t pair = 0; pair < num_pairs; ++pair)
        pairs[next[static_cast<size_t>(routing.ids[pair])]++] = pair;
    return groups;
}

void add_bias(const ExpertMatrix& matrix, int64_t expert, float* const* rows, int64_t num_rows, int64_t first,
              int64_t count) {
    if (!matrix.bias) return;
    const float* bias = matrix.bias + expert * matrix.first.num_rows;
    for (int64_t t = 0; t < num_rows; ++t)
        for (int64_t r = first; r < first + count; ++r) rows[t][r] += bias[r];
}

// Rows first..first+count-1 of one weight of one expert, times all inputs of its group.
void multiply(const RowKernels& kernels, const ExpertMatrix& weight, const Group& group, int64_t first,
              float* scratch, const Inputs& inputs, float* const* outputs) {
    const Matrix matrix = weight.expert(group.expert);
    const int64_t count = std::min(kRowsPerTask, matrix.num_rows - first);
    const int64_t num_tokens = group.end - group.begin;
    multiply_rows(kernels, matrix, first, inputs, group.begin, num_tokens, scratch, outputs + group.begin);
    add_bias(weight, group.expert, outputs + group.begin, num_tokens, first, count);
}

}  // namespace

void expert_mlp(WorkerPool& pool, const ExpertMlp& mlp, const Routing& routing, const float* x, float* out) {
    const RowKernels& kernels = pool.kernels();
    const int64_t H = mlp.down.first.num_rows, I = mlp.down.first.length;
    const int64_t num_pairs = routing.num_tokens * routing.num_used;

    int64_t* pairs = pool.buffer(WorkerPool::kPairs).reserve_array<int64_t>(num_pairs);
    const std::vector<Group> groups = group_by_expert(routing, mlp.num_experts, pairs);
    const int64_t num_groups = static_cast<int64_t>(groups.size());
    float* hidden = pool.buffer(WorkerPool::kHidden).reserve_array<float>(2 * num_pairs * I);
    float* partials = pool.buffer(WorkerPool::kPartials).reserve_array<float>(num_pairs * H);
    const float** vectors = pool.buffer(WorkerPool::kPointers).reserve_array<const float*>(4 * num_pairs);
    float** gates = const_cast<float**>(vectors + num_pairs);
    float** ups = const_cast<float**>(vectors + 2 * num_pairs);
    float** outputs = const_cast<float**>(vectors + 3 * num_pairs);
    int32_t* token_of_slot = pool.buffer(WorkerPool::kRowIds).reserve_array<int32_t>(2 * num_pairs);
    int32_t* own_slot = token_of_slot + num_pairs;
    for (int64_t slot = 0; slot < num_pairs; ++slot) {
        token_of_slot[slot] = static_cast<int32_t>(pairs[slot] / routing.num_used);
        own_slot[slot] = static_cast<int32_t>(slot);
        vectors[slot] = x + token_of_slot[slot] * H;
        gates[slot] = hidden + slot * I;
        ups[slot] = hidden + (num_pairs + slot) * I;
        outputs[slot] = partials + pairs[slot] * H;
    }
    pool.reserve_scratch(kRowsPerTask * std::max(H, I));

    // A token is quantized once, for all its experts.
    Inputs inputs = {vectors, {}, token_of_slot};
    if (mlp.gate.first.takes_bytes() || mlp.up.first.takes_bytes())
        inputs.quantized = quantize_rows(pool, WorkerPool::kQuantized, x, routing.num_tokens, H);
    const int64_t hidden_chunks = num_tasks(mlp.gate.first);
    pool.run(num_groups * hidden_chunks, [&](int64_t task, int thread) {
        const Group& group = groups[static_cast<size_t>(task / hidden_chunks)];
        const int64_t first = task % hidden_chunks * kRowsPerTask, last = std::min(first + kRowsPerTask, I);
        multiply(kernels, mlp.gate, group, first, pool.scratch(thread), inputs, gates);
        multiply(kernels, mlp.up, group, first, pool.scratch(thread), inputs, ups);
        for (int64_t slot = group.begin; slot < group.end; ++slot)
            for (int64_t i = first; i < last; ++i)
                gates[slot][i] = activate(mlp.activation, gates[slot][i], ups[slot][i]);
    });

    Inputs activated = {gates, {}, own_slot};
    if (mlp.down.first.takes_bytes())
        activated.quantized = quantize_rows(pool, WorkerPool::kQuantizedHidden, hidden, num_pairs, I);
    const int64_t out_chunks = num_tasks(mlp.down.first);
    pool.run(num_groups * out_chunks, [&](int64_t task, int thread) {
        multiply(kernels, mlp.down, groups[static_cast<size_t>(task / out_chunks)],
                 task % out_chunks * kRowsPerTask, pool.scratch(thread), activated, outputs);
    });

    pool.run(routing.num_tokens, [&](int64_t t, int) {
        std::fill(out + t * H, out + (t + 1) * H, 0.0f);
        for (int64_t pair = t * routing.num_used; pair < (t + 1) * routing.num_used; ++pair)
            kernels.add_scaled(routing.weights[pair], partials + pair * H, out + t * H, H);
    });
}

}  // namespace ktdesk
