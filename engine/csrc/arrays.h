// Arrays and weights as Python hands them over, and their checks. Arrays are never copied or converted: one
// of the wrong kind is a TypeError, one of the wrong shape a ValueError.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>

#include "expert_mlp.h"

namespace ktdesk {

namespace nb = nanobind;

template <class Element, int kDims>
using Array = nb::ndarray<Element, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
template <class Element, int kDims>
using StridedArray = nb::ndarray<Element, nb::ndim<kDims>, nb::device::cpu>;

using Floats1 = Array<const float, 1>;
using Floats2 = Array<const float, 2>;
using OutFloats2 = Array<float, 2>;
using Ids1 = Array<const int32_t, 1>;
using Ids2 = Array<const int32_t, 2>;

// Rows of weights: (num_rows, row_bytes) or (num_experts, num_rows, row_bytes); or panels of them,
// (num_panels, panel_bytes) or (num_experts, num_panels, panel_bytes). Experts may be a slice of a larger
// array (one half of a merged gate and up), so their stride is free.
using Blocks2 = Array<const uint8_t, 2>;
using Blocks3 = StridedArray<const uint8_t, 3>;

inline void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

inline int64_t dim(const auto& array, size_t axis) { return static_cast<int64_t>(array.shape(axis)); }

inline const float* data_or_null(const auto& optional_array) {
    return optional_array ? optional_array->data() : nullptr;
}

// Of the rows or panels.
inline int64_t num_bytes(const Matrix& matrix) {
    return matrix.row_bytes * (matrix.is_packed ? num_panels(matrix.num_rows) : matrix.num_rows);
}

// ValueError where an id is not in 0..limit-1.
void check_ids(const int32_t* ids, int64_t count, int64_t limit, const char* message);

// ValueError where the pool's kernels do not read the type.
WeightType checked_type(const WorkerPool& pool, int type);

// Elements of a row of so many bytes.
int64_t row_length(WeightType type, int64_t row_bytes);

// The rows and the row length of what lies in panels; none for rows as the file has them.
using PackedShape = std::optional<std::tuple<int64_t, int64_t>>;

// `num` rows or panels of `bytes` each, one after the other.
Matrix matrix_of(WeightType type, const uint8_t* data, int64_t num, int64_t bytes, const PackedShape& packed);

Matrix as_matrix(const WorkerPool& pool, int type, const Blocks2& blocks, const PackedShape& packed = {});

// A weight of all experts as Python hands it over: type, rows, shape, bias (experts, rows), scale (experts).
using ExpertWeight = std::tuple<int, Blocks3, PackedShape, std::optional<Floats2>, std::optional<Floats1>>;

void require_contiguous_rows(const Blocks3& blocks);

ExpertMatrix as_experts(const WorkerPool& pool, const ExpertWeight& weight);

using MlpWeights = std::tuple<ExpertWeight, ExpertWeight, ExpertWeight>;  // gate, up, down
using ActivationKind = std::tuple<int, float>;                            // and its limit

ExpertMlp as_mlp(const WorkerPool& pool, const MlpWeights& weights, const ActivationKind& activation,
                 bool weighs_inputs);

}  // namespace ktdesk
