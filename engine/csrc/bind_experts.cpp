// The choice of experts, and what they compute.
#include <memory>
#include <vector>

#include "bindings.h"
#include "cpu_share.h"
#include "expert_mlp.h"
#include "routing.h"

namespace ktdesk {

namespace {

int64_t num_bytes_of_expert(const ExpertMlp& mlp) {
    return num_bytes(mlp.gate.first) + num_bytes(mlp.up.first) + num_bytes(mlp.down.first);
}

int64_t num_distinct(const Routing& routing, int64_t num_experts) {
    std::vector<bool> is_hit(static_cast<size_t>(num_experts));
    int64_t count = 0;
    for (int64_t pair = 0; pair < routing.num_tokens * routing.num_used; ++pair) {
        if (!routing.has_expert(pair)) continue;
        const auto expert = static_cast<size_t>(routing.ids[pair]);
        count += !is_hit[expert];
        is_hit[expert] = true;
    }
    return count;
}

void require_mlp_shapes(const ExpertMlp& mlp, const Floats2& x, const OutFloats2& out) {
    const int64_t H = mlp.down.first.num_rows;
    require(dim(x, 1) == H && dim(out, 0) == dim(x, 0) && dim(out, 1) == H,
            "expert_mlp: x and out must be (tokens, H)");
}

void run_mlp(WorkerPool& pool, const ExpertMlp& mlp, const Routing& routing, const float* x, float* out) {
    check_experts(routing, mlp.num_experts);
    pool.weight_bytes += num_distinct(routing, mlp.num_experts) * num_bytes_of_expert(mlp);
    expert_mlp(pool, mlp, routing, x, out);
}

void call_expert_mlp(WorkerPool& pool, const ExpertWeight& gate, const ExpertWeight& up,
                     const ExpertWeight& down, const ActivationKind& activation, bool weighs_inputs,
                     const Ids2& ids, const Floats2& weights, const Floats2& x, const OutFloats2& out) {
    const MlpWeights arrays = {gate, up, down};
    const ExpertMlp mlp = as_mlp(pool, arrays, activation, weighs_inputs);
    require_mlp_shapes(mlp, x, out);
    const int64_t T = dim(x, 0);
    require(dim(ids, 0) == T && dim(weights, 0) == T && dim(ids, 1) == dim(weights, 1),
            "expert_mlp: ids and weights must be (tokens, used)");
    const Routing routing = {ids.data(), weights.data(), T, dim(ids, 1)};
    run_step(pool, {routing.ids, routing.weights, x.data(), out.data()},
             [&pool, mlp, arrays, routing, x = x.data(), out = out.data()] {
                 run_mlp(pool, mlp, routing, x, out);
             });
}

// All tokens to the first expert, with the weight 1.
struct OnlyExpert {
    explicit OnlyExpert(int64_t num_tokens)
        : ids(static_cast<size_t>(num_tokens), 0), weights(static_cast<size_t>(num_tokens), 1.0f) {}
    std::vector<int32_t> ids;
    std::vector<float> weights;
};

void call_only_expert_mlp(WorkerPool& pool, const ExpertWeight& gate, const ExpertWeight& up,
                          const ExpertWeight& down, const ActivationKind& activation, const Floats2& x,
                          const OutFloats2& out) {
    const MlpWeights arrays = {gate, up, down};
    const ExpertMlp mlp = as_mlp(pool, arrays, activation, false);
    require_mlp_shapes(mlp, x, out);
    const int64_t T = dim(x, 0);
    run_step(
        pool, {x.data(), out.data()},
        [&pool, mlp, arrays, only = std::make_shared<const OnlyExpert>(T), T, x = x.data(),
         out = out.data()] { run_mlp(pool, mlp, {only->ids.data(), only->weights.data(), T, 1}, x, out); });
}

void call_choose_experts(WorkerPool& pool, const Floats2& logits, const std::optional<Floats1>& bias,
                         int gating, bool normalize, float scale, int64_t num_groups, int64_t num_groups_used,
                         const Array<int32_t, 2>& ids, const OutFloats2& weights,
                         const std::optional<Array<int64_t, 1>>& counts) {
    const int64_t T = dim(logits, 0), E = dim(logits, 1), K = dim(ids, 1);
    const RoutingRule rule = {
        E, K, static_cast<Gating>(gating), normalize, scale, num_groups, num_groups_used};
    require(gating >= 1 && gating <= 3, "choose_experts: unknown gating");
    require(num_groups >= 1 && num_groups_used >= 1 && num_groups_used <= num_groups && E % num_groups == 0,
            "choose_experts: experts must be a multiple of groups");
    require(K >= 1 && K <= E / num_groups * num_groups_used,
            "choose_experts: more experts used than there are");
    require(!bias || dim(*bias, 0) == E, "choose_experts: one bias for each expert");
    require(dim(ids, 0) == T && dim(weights, 0) == T && dim(weights, 1) == K,
            "choose_experts: ids and weights must be (tokens, used)");
    require(!counts || dim(*counts, 0) == E, "choose_experts: one count for each expert");
    run_step(
        pool, {logits.data(), ids.data(), weights.data()},
        [&pool, rule, logits = logits.data(), bias, counts, T, ids = ids.data(), weights = weights.data()] {
            choose_experts(pool, rule, logits, data_or_null(bias), T, ids, weights);
            if (counts) count_use({ids, weights, T, rule.num_used}, counts->data());
        });
}

// num_deferred (1): read in each step.
void call_split_routes(WorkerPool& pool, const std::optional<Ids1>& slot_of_expert, const Ids1& num_deferred,
                       const Ids2& ids, const Floats2& weights, const Array<int32_t, 2>& immediate,
                       const Array<int32_t, 2>& deferred) {
    const int64_t T = dim(ids, 0), K = dim(ids, 1);
    for (const auto& [rows, columns] : {std::pair(dim(weights, 0), dim(weights, 1)),
                                        {dim(immediate, 0), dim(immediate, 1)},
                                        {dim(deferred, 0), dim(deferred, 1)}})
        require(rows == T && columns == K, "split_routes: all of the shape (tokens, used)");
    require(dim(num_deferred, 0) == 1, "split_routes: one number of deferred experts");
    const Routing routing = {ids.data(), weights.data(), T, K};
    const int64_t num_experts = slot_of_expert ? dim(*slot_of_expert, 0) : INT64_MAX;
    run_step(pool, {routing.ids, routing.weights, immediate.data(), deferred.data()},
             [routing, slot_of_expert, num_deferred, num_experts, immediate = immediate.data(),
              deferred = deferred.data()] {
                 check_experts(routing, num_experts);
                 SplitIds split = {immediate, deferred};
                 const SplitRule rule = {slot_of_expert ? slot_of_expert->data() : nullptr,
                                         num_deferred.data()[0]};
                 split_routes(routing, rule, split);
             });
}

// out = slot_of_expert (E) of each id, and kNoExpert where that is below 0.
void call_map_experts(WorkerPool& pool, const Ids1& slot_of_expert, const Ids2& ids,
                      const Array<int32_t, 2>& out) {
    const int64_t count = dim(ids, 0) * dim(ids, 1), num_experts = dim(slot_of_expert, 0);
    require(dim(out, 0) == dim(ids, 0) && dim(out, 1) == dim(ids, 1), "map_experts: as many slots as ids");
    run_step(pool, {ids.data(), out.data()},
             [slot_of_expert, count, num_experts, ids = ids.data(), out = out.data()] {
                 check_experts({ids, nullptr, count, 1}, num_experts);
                 for (int64_t i = 0; i < count; ++i) {
                     const int32_t slot = ids[i] == kNoExpert ? kNoExpert : slot_of_expert.data()[ids[i]];
                     out[i] = slot < 0 ? kNoExpert : slot;
                 }
             });
}

}  // namespace

void bind_experts(nb::module_& m) {
    m.def("expert_mlp", call_expert_mlp, nb::arg("pool"), nb::arg("gate").noconvert(),
          nb::arg("up").noconvert(), nb::arg("down").noconvert(), nb::arg("activation"),
          nb::arg("weighs_inputs"), nb::arg("ids").noconvert(), nb::arg("weights").noconvert(),
          nb::arg("x").noconvert(), nb::arg("out").noconvert());
    m.def("only_expert_mlp", call_only_expert_mlp, nb::arg("pool"), nb::arg("gate").noconvert(),
          nb::arg("up").noconvert(), nb::arg("down").noconvert(), nb::arg("activation"),
          nb::arg("x").noconvert(), nb::arg("out").noconvert());
    m.def("choose_experts", call_choose_experts, nb::arg("pool"), nb::arg("logits").noconvert(),
          nb::arg("bias").none().noconvert(), nb::arg("gating"), nb::arg("normalize"), nb::arg("scale"),
          nb::arg("num_groups"), nb::arg("num_groups_used"), nb::arg("ids").noconvert(),
          nb::arg("weights").noconvert(), nb::arg("counts").none().noconvert());
    m.def("map_experts", call_map_experts, nb::arg("pool"), nb::arg("slot_of_expert").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("out").noconvert());
    m.def("split_routes", call_split_routes, nb::arg("pool"), nb::arg("slot_of_expert").none().noconvert(),
          nb::arg("num_deferred").noconvert(), nb::arg("ids").noconvert(), nb::arg("weights").noconvert(),
          nb::arg("immediate").noconvert(), nb::arg("deferred").noconvert());
}

}  // namespace ktdesk
