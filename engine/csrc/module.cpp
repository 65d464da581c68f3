// What Python sees: checks of shape, type and contiguity, release of the GIL, calls. Arrays are never copied
// or converted: one of the wrong kind is a TypeError, one of the wrong shape a ValueError.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "attention.h"
#include "dispatch.h"
#include "elementwise.h"
#include "expert_mlp.h"
#include "linear.h"
#include "pack.h"
#include "probes.h"
#include "routing.h"

namespace nb = nanobind;
using namespace ktdesk;

namespace {

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

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

int64_t dim(const auto& array, size_t axis) { return static_cast<int64_t>(array.shape(axis)); }

const float* data_or_null(const auto& optional_array) {
    return optional_array ? optional_array->data() : nullptr;
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

// The rows and the row length of what lies in panels; none for rows as the file has them.
using PackedShape = std::optional<std::tuple<int64_t, int64_t>>;

// `num` rows or panels of `bytes` each, one after the other.
Matrix matrix_of(WeightType type, const uint8_t* data, int64_t num, int64_t bytes,
                 const PackedShape& packed) {
    if (!packed) return {type, data, bytes, num, row_length(type, bytes)};
    const auto [num_rows, length] = *packed;
    require(panel_format(type).code_bits > 0 && length > 0 && length % block_values(type) == 0 &&
                num_rows > 0 && num == num_panels(num_rows) && bytes == panel_bytes(type, length),
            "these are not the panels of so many rows of this length");
    require(reinterpret_cast<uintptr_t>(data) % kCacheLine == 0, "panels must start at a cache line");
    return {type, data, bytes, num_rows, length, true};
}

Matrix as_matrix(const WorkerPool& pool, int type, const Blocks2& blocks, const PackedShape& packed = {}) {
    return matrix_of(checked_type(pool, type), blocks.data(), dim(blocks, 0), dim(blocks, 1), packed);
}

// A weight of all experts as Python hands it over.
using ExpertWeight = std::tuple<int, Blocks3, PackedShape, std::optional<Floats2>>;

void require_contiguous_rows(const Blocks3& blocks) {
    require(blocks.stride(2) == 1 && (dim(blocks, 1) == 1 || blocks.stride(1) == dim(blocks, 2)),
            "the rows of an expert or a head must be contiguous");
}

ExpertMatrix as_experts(const WorkerPool& pool, const ExpertWeight& weight) {
    const auto& [type_id, blocks, packed, bias] = weight;
    require_contiguous_rows(blocks);
    const WeightType type = checked_type(pool, type_id);
    const Matrix first = matrix_of(type, blocks.data(), dim(blocks, 1), dim(blocks, 2), packed);
    require(!bias || (dim(*bias, 0) == dim(blocks, 0) && dim(*bias, 1) == first.num_rows),
            "an expert bias must have the shape (experts, rows)");
    require(!packed || blocks.stride(0) % kCacheLine == 0,
            "the panels of each expert must start at a cache line");
    return {first, blocks.stride(0), data_or_null(bias)};
}

void check_ids(const int32_t* ids, size_t count, int64_t limit, const char* message) {
    for (size_t i = 0; i < count; ++i) require(ids[i] >= 0 && ids[i] < limit, message);
}

// Runs an operation without the GIL, alone on its pool.
template <class Operation>
void run_alone(WorkerPool& pool, const Operation& operation) {
    nb::gil_scoped_release release;
    const auto lock = pool.lock();
    operation();
}

void bind_pack(WorkerPool& pool, int type, const Blocks2& blocks, const Array<uint8_t, 2>& panels) {
    const Matrix matrix = as_matrix(pool, type, blocks);
    matrix_of(matrix.type, panels.data(), dim(panels, 0), dim(panels, 1),
              std::tuple(matrix.num_rows, matrix.length));
    run_alone(pool, [&] { pack(pool, matrix, panels.data()); });
}

int64_t bind_panel_bytes(int type, int64_t length) {
    require(type >= 0 && type < kNumWeightTypes && length >= 0, "no such weight type or length");
    const bool has_panels = panel_format(type).code_bits > 0 && length % block_values(type) == 0;
    return has_panels ? panel_bytes(type, length) : 0;
}

void bind_linear(WorkerPool& pool, int type, const Blocks2& weight, const PackedShape& packed,
                 const Floats2& x, const OutFloats2& out, const std::optional<Floats1>& bias) {
    const Matrix matrix = as_matrix(pool, type, weight, packed);
    require(dim(x, 1) == matrix.length, "linear: x must have the row length of the weight");
    require(dim(out, 0) == dim(x, 0) && dim(out, 1) == matrix.num_rows, "linear: out must be (tokens, rows)");
    require(!bias || dim(*bias, 0) == matrix.num_rows, "linear: one bias for each row");
    run_alone(pool, [&] { linear(pool, matrix, data_or_null(bias), x.data(), dim(x, 0), out.data()); });
}

void bind_linear_per_head(WorkerPool& pool, int type_id, const Blocks3& weight,
                          const StridedArray<const float, 3>& x, const Array<float, 3>& out) {
    const WeightType type = checked_type(pool, type_id);
    const int64_t num_heads = dim(weight, 0), num_rows = dim(weight, 1), row_bytes = dim(weight, 2);
    require_contiguous_rows(weight);
    const HeadMatrices matrices = {
        {type, weight.data(), row_bytes, num_rows, row_length(type, row_bytes)}, weight.stride(0), num_heads};
    require(dim(x, 1) == num_heads && dim(x, 2) == matrices.first.length && x.stride(2) == 1,
            "linear_per_head: x must be (tokens, heads, row length), its vectors contiguous");
    require(dim(out, 0) == dim(x, 0) && dim(out, 1) == num_heads && dim(out, 2) == num_rows,
            "linear_per_head: out must be (tokens, heads, rows)");
    const HeadVectors vectors = {x.data(), x.stride(0), x.stride(1)};
    run_alone(pool, [&] { linear_per_head(pool, matrices, vectors, dim(x, 0), out.data()); });
}

void bind_get_rows(WorkerPool& pool, int type, const Blocks2& weight, const Ids1& ids,
                   const OutFloats2& out) {
    const Matrix matrix = as_matrix(pool, type, weight);
    require(dim(out, 0) == dim(ids, 0) && dim(out, 1) == matrix.length,
            "get_rows: out must be (ids, row length)");
    check_ids(ids.data(), ids.size(), matrix.num_rows, "get_rows: an id is outside the matrix");
    run_alone(pool, [&] { get_rows(pool, matrix, ids.data(), dim(ids, 0), out.data()); });
}

void bind_expert_mlp(WorkerPool& pool, const ExpertWeight& gate, const ExpertWeight& up,
                     const ExpertWeight& down, int activation, const Ids2& ids, const Floats2& weights,
                     const Floats2& x, const OutFloats2& out) {
    const int64_t num_experts = dim(std::get<1>(gate), 0);
    require(activation == 0 || activation == 1, "expert_mlp: unknown activation");
    const ExpertMlp mlp = {as_experts(pool, gate), as_experts(pool, up), as_experts(pool, down), num_experts,
                           static_cast<Activation>(activation)};
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

void bind_choose_experts(WorkerPool& pool, const Floats2& logits, const std::optional<Floats1>& bias,
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

using Pages = StridedArray<uint8_t, 4>;  // (pages, heads, page_size, row bytes)

// Rows of one layer as Python hands them over: (type, elements of a row, pages).
using CacheRows = std::tuple<int, int64_t, Pages>;

CachedRows as_cached_rows(const WorkerPool& pool, const CacheRows& rows) {
    const auto& [type_id, length, pages] = rows;
    const WeightType type = checked_type(pool, type_id);
    require(pool.kernels().attend_tile[type] != nullptr, "a cache cannot have this type");
    require(length > 0 && length % block_values(type) == 0, "cached rows must be whole blocks of their type");
    const int64_t row_bytes = padded_length(length) / block_values(type) * block_bytes(type);
    require(pages.stride(3) == 1 && dim(pages, 3) >= row_bytes, "a cached row has too few bytes");
    const bool is_aligned = reinterpret_cast<uintptr_t>(pages.data()) % 4 == 0 && pages.stride(0) % 4 == 0 &&
                            pages.stride(1) % 4 == 0 && pages.stride(2) % 4 == 0;
    require(type != F32 || is_aligned, "cached floats must be aligned");
    require(dim(pages, 1) > 0 && dim(pages, 2) > 0, "a cache must have heads and positions");
    return {type, pages.data(), pages.stride(0), pages.stride(1), pages.stride(2), length};
}

// Where tokens stand as Python hands it over: (page tables, sequences, positions).
using ContextArrays = std::tuple<Ids2, Ids1, Ids1>;

PagedContext as_context(const ContextArrays& arrays, const Pages& pages) {
    const auto& [page_tables, sequences, positions] = arrays;
    const int64_t max_pages = dim(page_tables, 1), page_size = dim(pages, 2);
    require(dim(sequences, 0) == dim(positions, 0), "a sequence and a position for each token");
    check_ids(sequences.data(), sequences.size(), dim(page_tables, 0), "a token of no sequence");
    check_ids(positions.data(), positions.size(), max_pages * page_size, "a position past the pages");
    check_ids(page_tables.data(), page_tables.size(), dim(pages, 0), "a page outside the cache");
    return {dim(sequences, 0), page_size, page_tables.data(), max_pages, sequences.data(), positions.data()};
}

void bind_store_rows(WorkerPool& pool, const CacheRows& rows, const ContextArrays& arrays,
                     const Array<const float, 3>& x) {
    const CachedRows cached = as_cached_rows(pool, rows);
    const Pages& pages = std::get<2>(rows);
    const PagedContext context = as_context(arrays, pages);
    require(dim(x, 0) == context.num_tokens && dim(x, 1) == dim(pages, 1) && dim(x, 2) == cached.length,
            "store_rows: x must be (tokens, heads, row length)");
    run_alone(pool, [&] { store_rows(pool, cached, context, dim(x, 1), x.data()); });
}

void bind_attention(WorkerPool& pool, const Array<const float, 3>& queries, const CacheRows& keys,
                    const CacheRows& values, const ContextArrays& arrays, const Array<float, 3>& out,
                    float scale, int64_t window, float soft_cap, const std::optional<Floats1>& sinks) {
    const Pages &key_pages = std::get<2>(keys), &value_pages = std::get<2>(values);
    const int64_t T = dim(queries, 0), num_heads = dim(queries, 1), num_kv_heads = dim(key_pages, 1);
    const Attention a = {queries.data(),
                         as_cached_rows(pool, keys),
                         as_cached_rows(pool, values),
                         out.data(),
                         num_heads,
                         num_kv_heads,
                         as_context(arrays, key_pages),
                         scale,
                         window,
                         soft_cap,
                         data_or_null(sinks)};
    require(dim(queries, 2) == a.keys.length, "attention: queries must be as long as keys");
    require(dim(out, 0) == T && dim(out, 1) == num_heads && dim(out, 2) == a.values.length,
            "attention: out must be (tokens, heads, value length)");
    require(a.context.num_tokens == T, "attention: a position for each query");
    require(num_heads > 0 && num_heads % num_kv_heads == 0,
            "attention: heads must be a multiple of key heads");
    require(a.keys.type == a.values.type, "attention: keys and values must have one type");
    for (const size_t axis : {0, 1, 2})
        require(dim(value_pages, axis) == dim(key_pages, axis),
                "attention: keys and values must share pages");
    require(!sinks || dim(*sinks, 0) == num_heads, "attention: one sink for each head");
    run_alone(pool, [&] { attention(pool, a); });
}

void bind_rms_norm(WorkerPool& pool, const Floats2& x, const Floats1& weight, float epsilon,
                   const OutFloats2& out) {
    require(dim(weight, 0) == dim(x, 1) && dim(out, 0) == dim(x, 0) && dim(out, 1) == dim(x, 1),
            "rms_norm: x and out must have rows as long as the weight");
    run_alone(pool,
              [&] { rms_norm(pool, x.data(), weight.data(), epsilon, dim(x, 0), dim(x, 1), out.data()); });
}

void bind_rope(WorkerPool& pool, const StridedArray<float, 3>& x, const Floats2& cosines,
               const Floats2& sines, int pairing) {
    const int64_t T = dim(x, 0), num_pairs = dim(cosines, 1);
    require(pairing == 0 || pairing == 1, "rope: unknown pairing");
    require(x.stride(2) == 1 && 2 * num_pairs <= dim(x, 2), "rope: heads must hold all pairs, contiguously");
    require(dim(cosines, 0) == T && dim(sines, 0) == T && dim(sines, 1) == num_pairs,
            "rope: cosines and sines must be (tokens, pairs)");
    const Rope r = {x.data(),     T,           dim(x, 1),
                    x.stride(0),  x.stride(1), cosines.data(),
                    sines.data(), num_pairs,   static_cast<RopePairing>(pairing)};
    run_alone(pool, [&] { rope(pool, r); });
}

void bind_dequantize(WorkerPool& pool, int type, const Blocks2& blocks, const OutFloats2& out) {
    const Matrix matrix = as_matrix(pool, type, blocks);
    require(dim(out, 0) == matrix.num_rows && dim(out, 1) == matrix.length,
            "dequantize: out must be (rows, length)");
    run_alone(pool, [&] {
        pool.run(matrix.num_rows, [&](int64_t r, int) {
            pool.kernels().dequantize[type](matrix.rows + r * matrix.row_bytes,
                                            out.data() + r * matrix.length, matrix.length);
        });
    });
}

// (seconds, bytes or operations, checksum)
using ProbeTuple = std::tuple<double, double, double>;

template <class Measure>
ProbeTuple probe_alone(WorkerPool& pool, const Measure& measure) {
    Probe probe = {};
    run_alone(pool, [&] { probe = measure(); });
    return {probe.seconds, probe.amount, probe.checksum};
}

void bind_touch(WorkerPool& pool, const Array<uint8_t, 1>& data) {
    run_alone(pool, [&] { touch(pool, data.data(), dim(data, 0)); });
}

ProbeTuple bind_probe_read(WorkerPool& pool, const Array<const uint8_t, 1>& data) {
    require(dim(data, 0) % 256 == 0, "probe_read: the buffer must be a multiple of 256 bytes");
    return probe_alone(pool, [&] { return probe_read(pool, data.data(), dim(data, 0)); });
}

ProbeTuple bind_probe_peak(WorkerPool& pool, const std::string& name, int64_t num_rounds) {
    const PeakLoop* peak = find_peak(pool, name);
    require(peak != nullptr, "probe_peak: the instruction set has no loop of this name");
    require(num_rounds >= 1 && num_rounds <= int64_t{1} << 40, "probe_peak: 1 to 2^40 rounds");
    return probe_alone(pool, [&] { return probe_peak(pool, *peak, num_rounds); });
}

void bind_pool(WorkerPool* self, int num_threads, const std::string& isa) {
    const RowKernels* kernels = find_row_kernels(isa);
    require(num_threads >= 1, "a pool needs at least one thread");
    require(kernels != nullptr, "this machine has no such instruction set");
    new (self) WorkerPool(num_threads, *kernels);
}

}  // namespace

NB_MODULE(_kernels, m) {
    nb::class_<WorkerPool>(m, "WorkerPool")
        .def("__init__", bind_pool, nb::arg("num_threads"), nb::arg("isa"))
        .def_prop_ro("num_threads", &WorkerPool::num_threads)
        .def_prop_ro("isa", [](const WorkerPool& pool) { return std::string(pool.kernels().name); });
    m.def("isas", available_isas, nb::arg("with_variants"));
    m.def("panel_bytes", bind_panel_bytes, nb::arg("type"), nb::arg("length"));
    m.def("pack", bind_pack, nb::arg("pool"), nb::arg("type"), nb::arg("blocks").noconvert(),
          nb::arg("panels").noconvert());
    m.def("linear", bind_linear, nb::arg("pool"), nb::arg("type"), nb::arg("weight").noconvert(),
          nb::arg("packed").none(), nb::arg("x").noconvert(), nb::arg("out").noconvert(),
          nb::arg("bias").none().noconvert());
    m.def("linear_per_head", bind_linear_per_head, nb::arg("pool"), nb::arg("type"),
          nb::arg("weight").noconvert(), nb::arg("x").noconvert(), nb::arg("out").noconvert());
    m.def("get_rows", bind_get_rows, nb::arg("pool"), nb::arg("type"), nb::arg("weight").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("out").noconvert());
    m.def("expert_mlp", bind_expert_mlp, nb::arg("pool"), nb::arg("gate").noconvert(),
          nb::arg("up").noconvert(), nb::arg("down").noconvert(), nb::arg("activation"),
          nb::arg("ids").noconvert(), nb::arg("weights").noconvert(), nb::arg("x").noconvert(),
          nb::arg("out").noconvert());
    m.def("choose_experts", bind_choose_experts, nb::arg("pool"), nb::arg("logits").noconvert(),
          nb::arg("bias").none().noconvert(), nb::arg("gating"), nb::arg("normalize"), nb::arg("scale"),
          nb::arg("num_groups"), nb::arg("num_groups_used"), nb::arg("ids").noconvert(),
          nb::arg("weights").noconvert());
    m.def("store_rows", bind_store_rows, nb::arg("pool"), nb::arg("rows").noconvert(),
          nb::arg("context").noconvert(), nb::arg("x").noconvert());
    m.def("attention", bind_attention, nb::arg("pool"), nb::arg("queries").noconvert(),
          nb::arg("keys").noconvert(), nb::arg("values").noconvert(), nb::arg("context").noconvert(),
          nb::arg("out").noconvert(), nb::arg("scale"), nb::arg("window"), nb::arg("soft_cap"),
          nb::arg("sinks").none().noconvert());
    m.def("rms_norm", bind_rms_norm, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("weight").noconvert(),
          nb::arg("epsilon"), nb::arg("out").noconvert());
    m.def("rope", bind_rope, nb::arg("pool"), nb::arg("x").noconvert(), nb::arg("cosines").noconvert(),
          nb::arg("sines").noconvert(), nb::arg("pairing"));
    m.def("dequantize", bind_dequantize, nb::arg("pool"), nb::arg("type"), nb::arg("blocks").noconvert(),
          nb::arg("out").noconvert());
    m.def("touch", bind_touch, nb::arg("pool"), nb::arg("data").noconvert());
    m.def("probe_read", bind_probe_read, nb::arg("pool"), nb::arg("data").noconvert());
    m.def("probe_peak", bind_probe_peak, nb::arg("pool"), nb::arg("name"), nb::arg("num_rounds"));
}
