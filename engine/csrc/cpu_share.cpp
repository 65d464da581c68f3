#include "cpu_share.h"

#include <algorithm>

#include "spinning.h"

namespace ktdesk {

namespace {

void split_token(const int32_t* ids, const float* weights, int64_t K, const SplitRule& rule,
                 int32_t* immediate, int32_t* deferred) {
    int64_t num_left = 0;
    for (int64_t j = 0; j < K; ++j) {
        const bool is_elsewhere =
            ids[j] == kNoExpert || (rule.slot_of_expert && rule.slot_of_expert[ids[j]] >= 0);
        immediate[j] = is_elsewhere ? kNoExpert : ids[j];
        deferred[j] = kNoExpert;
        num_left += !is_elsewhere;
    }
    const int64_t num_deferred = std::min(rule.num_deferred, num_left - kMinImmediate);
    for (int64_t i = 0; i < num_deferred; ++i) {
        int64_t least = -1;
        for (int64_t j = 0; j < K; ++j)
            if (immediate[j] != kNoExpert && (least < 0 || weights[j] <= weights[least])) least = j;
        std::swap(immediate[least], deferred[least]);
    }
}

// All threads of the pool look, so that none sleeps when there is work.
void poll(WorkerPool& pool, const std::atomic<uint32_t>& flag) {
    if (pool.num_threads() == 1) return;
    pool.run(pool.num_threads(),
             [&](int64_t, int) { spin_until([&] { return flag.load(std::memory_order_relaxed) != 0; }); });
}

void add(WorkerPool& pool, const float* x, int64_t count, float* sum) {
    pool.kernels().add_scaled(1.0f, x, sum, count);
}

}  // namespace

void split_routes(const Routing& routing, const SplitRule& rule, SplitIds& split) {
    const int64_t K = routing.num_used, num_pairs = routing.num_tokens * K;
    for (int64_t begin = 0; begin < num_pairs; begin += K)
        split_token(routing.ids + begin, routing.weights + begin, K, rule, split.immediate + begin,
                    split.deferred + begin);
    split.num_deferred = num_pairs - std::count(split.deferred, split.deferred + num_pairs, kNoExpert);
}

void count_use(const Routing& routing, int64_t* counts) {
    for (int64_t pair = 0; pair < routing.num_tokens * routing.num_used; ++pair)
        if (routing.has_expert(pair)) ++counts[routing.ids[pair]];
}

void run_cpu_share(WorkerPool& pool, CpuShare& share) {
    HandOff& hand_off = share.hand_off;
    const HandOff::Area area = hand_off.area(share.layer);
    const bool is_first = share.layer == 0, is_last = share.layer == hand_off.num_layers - 1;
    poll(pool, hand_off.ready(share.layer));
    hand_off.take(hand_off.ready(share.layer), "the accelerator");

    const Routing routing = share.routing();
    check_experts(routing, share.mlp.num_experts);
    count_use(routing, share.counts);
    const size_t num_pairs = static_cast<size_t>(routing.num_tokens * routing.num_used);
    share.split_ids.resize(2 * num_pairs);
    SplitIds split = {share.split_ids.data(), share.split_ids.data() + num_pairs};
    const int64_t num_deferred = share.num_deferred && !is_last ? *share.num_deferred : 0;
    split_routes(routing, {share.slot_of_expert, num_deferred}, split);

    const auto compute = [&](const int32_t* ids, float* out) {
        expert_mlp(pool, share.mlp, {ids, routing.weights, routing.num_tokens, routing.num_used}, area.x,
                   out);
    };
    const int64_t num_floats = share.num_tokens * hand_off.hidden;
    compute(split.immediate, area.out);
    if (!is_first && *share.has_pending) add(pool, share.pending, num_floats, area.out);
    HandOff::give(hand_off.done(share.layer));

    *share.has_pending = split.num_deferred > 0;
    if (split.num_deferred > 0) compute(split.deferred, share.pending);
}

}  // namespace ktdesk
