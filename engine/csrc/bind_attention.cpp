// Attention over the paged cache.
#include "bindings.h"
#include "attention.h"

namespace ktdesk {

namespace {

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
    require(dim(sequences, 0) == dim(positions, 0), "a sequence and a position for each token");
    return {dim(sequences, 0),   dim(pages, 2),    page_tables.data(),
            dim(page_tables, 1), sequences.data(), positions.data()};
}

// What the ids of a context may be.
struct Limits {
    int64_t num_sequences, num_pages;
};

Limits limits_of(const ContextArrays& arrays, const Pages& pages) {
    return {dim(std::get<0>(arrays), 0), dim(pages, 0)};
}

void check_context(const PagedContext& c, const Limits& limits) {
    check_ids(c.sequences, c.num_tokens, limits.num_sequences, "a token of no sequence");
    check_ids(c.positions, c.num_tokens, c.max_pages * c.page_size, "a position past the pages");
    check_ids(c.page_tables, limits.num_sequences * c.max_pages, limits.num_pages,
              "a page outside the cache");
}

void call_store_rows(WorkerPool& pool, const CacheRows& rows, const ContextArrays& arrays,
                     const Array<const float, 3>& x) {
    const CachedRows cached = as_cached_rows(pool, rows);
    const Pages& pages = std::get<2>(rows);
    const PagedContext context = as_context(arrays, pages);
    require(dim(x, 0) == context.num_tokens && dim(x, 1) == dim(pages, 1) && dim(x, 2) == cached.length,
            "store_rows: x must be (tokens, heads, row length)");
    run_step(pool, {x.data(), context.page_tables, context.sequences, context.positions},
             [&pool, cached, pages, context, limits = limits_of(arrays, pages), num_heads = dim(x, 1),
              x = x.data()] {
                 check_context(context, limits);
                 store_rows(pool, cached, context, num_heads, x);
             });
}

void call_attention(WorkerPool& pool, const Array<const float, 3>& queries, const CacheRows& keys,
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
    run_step(pool, {a.queries, a.out, a.context.page_tables, a.context.sequences, a.context.positions},
             [&pool, a, key_pages, value_pages, sinks, limits = limits_of(arrays, key_pages)] {
                 check_context(a.context, limits);
                 attention(pool, a);
             });
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("store_rows", call_store_rows, nb::arg("pool"), nb::arg("rows").noconvert(),
          nb::arg("context").noconvert(), nb::arg("x").noconvert());
    m.def("attention", call_attention, nb::arg("pool"), nb::arg("queries").noconvert(),
          nb::arg("keys").noconvert(), nb::arg("values").noconvert(), nb::arg("context").noconvert(),
          nb::arg("out").noconvert(), nb::arg("scale"), nb::arg("window"), nb::arg("soft_cap"),
          nb::arg("sinks").none().noconvert());
}

}  // namespace ktdesk
