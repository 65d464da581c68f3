#include "arrays.h"

namespace ktdesk {

void check_ids(const int32_t* ids, int64_t count, int64_t limit, const char* message) {
    bool is_good = true;  // no branch in the loop, so that it is wide
    for (int64_t i = 0; i < count; ++i) is_good &= ids[i] >= 0 && ids[i] < limit;
    require(is_good, message);
}

WeightType checked_type(const WorkerPool& pool, int type) {
    require(type >= 0 && type < kNumWeightTypes && pool.kernels().dequantize[type] != nullptr,
            "no kernel reads this weight type");
    return static_cast<WeightType>(type);
}

int64_t row_length(WeightType type, int64_t row_bytes) {
    require(row_bytes > 0 && row_bytes % block_bytes(type) == 0, "rows must be whole blocks of their type");
    return row_bytes / block_bytes(type) * block_values(type);
}

Matrix matrix_of(WeightType type, const uint8_t* data, int64_t num, int64_t bytes,
                 const PackedShape& packed) {
    if (!packed) return {type, data, bytes, num, row_length(type, bytes)};
    const auto [num_rows, length] = *packed;
    require(length > 0 && has_panels(type, length) && num_rows > 0 && num == num_panels(num_rows) &&
                bytes == panel_bytes(type, length),
            "these are not the panels of so many rows of this length");
    require(reinterpret_cast<uintptr_t>(data) % kCacheLine == 0, "panels must start at a cache line");
    return {type, data, bytes, num_rows, length, true};
}

Matrix as_matrix(const WorkerPool& pool, int type, const Blocks2& blocks, const PackedShape& packed) {
    return matrix_of(checked_type(pool, type), blocks.data(), dim(blocks, 0), dim(blocks, 1), packed);
}

void require_contiguous_rows(const Blocks3& blocks) {
    require(blocks.stride(2) == 1 && (dim(blocks, 1) == 1 || blocks.stride(1) == dim(blocks, 2)),
            "the rows of an expert or a head must be contiguous");
}

ExpertMatrix as_experts(const WorkerPool& pool, const ExpertWeight& weight) {
    const auto& [type_id, blocks, packed, bias, scale] = weight;
    require_contiguous_rows(blocks);
    const WeightType type = checked_type(pool, type_id);
    const Matrix first = matrix_of(type, blocks.data(), dim(blocks, 1), dim(blocks, 2), packed);
    require(!bias || (dim(*bias, 0) == dim(blocks, 0) && dim(*bias, 1) == first.num_rows),
            "an expert bias must have the shape (experts, rows)");
    require(!scale || dim(*scale, 0) == dim(blocks, 0), "one scale for each expert");
    require(!packed || blocks.stride(0) % kCacheLine == 0,
            "the panels of each expert must start at a cache line");
    return {first, blocks.stride(0), data_or_null(bias), data_or_null(scale)};
}

ExpertMlp as_mlp(const WorkerPool& pool, const MlpWeights& weights, const ActivationKind& activation,
                 bool weighs_inputs) {
    const auto& [gate, up, down] = weights;
    const int64_t num_experts = dim(std::get<1>(gate), 0);
    const auto [kind, limit] = activation;
    require(kind >= 0 && kind < kNumActivations, "expert_mlp: unknown activation");
    const ExpertMlp mlp = {as_experts(pool, gate),
                           as_experts(pool, up),
                           as_experts(pool, down),
                           num_experts,
                           {static_cast<Activation>(kind), limit},
                           weighs_inputs};
    const int64_t H = mlp.down.first.num_rows, I = mlp.down.first.length;
    require(dim(std::get<1>(up), 0) == num_experts && dim(std::get<1>(down), 0) == num_experts,
            "expert_mlp: gate, up and down must have as many experts");
    require(mlp.gate.first.num_rows == I && mlp.up.first.num_rows == I && mlp.gate.first.length == H &&
                mlp.up.first.length == H,
            "expert_mlp: gate and up must be (experts, I, H) where down is (experts, H, I)");
    return mlp;
}

}  // namespace ktdesk
