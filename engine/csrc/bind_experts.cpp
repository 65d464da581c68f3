// The choice of experts, and what they compute.
#include "bindings.h"
#include "expert_mlp.h"
#include "routing.h"

namespace ktdesk {

namespace {

void call_expert_mlp(WorkerPool& pool, const ExpertWeight& gate, const ExpertWeight& up,
                     const ExpertWeight& down, std::tuple<int, float> activation, bool weighs_inputs,
                     const Ids2& ids, const Floats2& weights, const Floats2& x, const OutFloats2& out) {
    const int64_t num_experts = dim(std::get<1>(gate), 0);
    const auto [kind, limit] = activation;
    require(kind >= 0 && kind < kNumActivations, "expert_mlp: unknown activation");
    const ExpertMlp mlp = {as_experts(pool, gate),
                           as_experts(pool, up),
                           as_experts(pool, down),
                           num_experts,
                           {static_cast<Activation>(kind), limit},
                           weighs_inputs};
    const int64_t T = dim(x, 0), H = mlp.down.first.num_rows, I = mlp.down.first.length;
    require(dim(std::get<1>(up), 0) == num_experts && dim(std::get<1>(down), 0) == num_experts,
            "expert_mlp: gate, up and down must have as many experts");
    require(mlp.gate.first.num_rows == I && mlp.up.first.num_rows == I && mlp.gate.first.length == H &&
                mlp.up.first.length == H,
            "expert_mlp: gate and up must be (experts, I, H) where down is (experts, H, I)");
    require(dim(x, 1) == H && dim(out, 0) == T && dim(out, 1) == H,
            "expert_mlp: x and out must be (tokens, H)");
    require(dim(ids, 0) == T && dim(weights, 0) == T && dim(ids, 1) == dim(weights, 1),
            "expert_mlp: ids and weights must be (tokens, used)");
    check_ids(ids.data(), ids.size(), num_experts, "expert_mlp: an expert id is out of range");
    const Routing routing = {ids.data(), weights.data(), T, dim(ids, 1)};
    run_alone(pool, [&] { expert_mlp(pool, mlp, routing, x.data(), out.data()); });
}

void call_choose_experts(WorkerPool& pool, const Floats2& logits, const std::optional<Floats1>& bias,
                         int gating, bool normalize, float scale, int64_t num_groups, int64_t num_groups_used,
                         const Array<int32_t, 2>& ids, const OutFloats2& weights) {
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
    run_alone(pool, [&] {
        choose_experts(pool, rule, logits.data(), data_or_null(bias), T, ids.data(), weights.data());
    });
}

}  // namespace

void bind_experts(nb::module_& m) {
    m.def("expert_mlp", call_expert_mlp, nb::arg("pool"), nb::arg("gate").noconvert(),
          nb::arg("up").noconvert(), nb::arg("down").noconvert(), nb::arg("activation"),
          nb::arg("weighs_inputs"), nb::arg("ids").noconvert(), nb::arg("weights").noconvert(),
          nb::arg("x").noconvert(), nb::arg("out").noconvert());
    m.def("choose_experts", call_choose_experts, nb::arg("pool"), nb::arg("logits").noconvert(),
          nb::arg("bias").none().noconvert(), nb::arg("gating"), nb::arg("normalize"), nb::arg("scale"),
          nb::arg("num_groups"), nb::arg("num_groups_used"), nb::arg("ids").noconvert(),
          nb::arg("weights").noconvert());
}

}  // namespace ktdesk
