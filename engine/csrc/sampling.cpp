#include "sampling.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace ktdesk {

namespace {

// Few enough that most blocks have nothing to offer, once the heap has filled.
constexpr int64_t kBlock = 64;

bool has_larger(const float* values, float limit) {
    int num_larger = 0;  // counted without a branch, so that the loop is wide
    for (int64_t i = 0; i < kBlock; ++i) num_larger += values[i] > limit;
    return num_larger > 0;
}

}  // namespace

int64_t count_not_finite(WorkerPool& pool, const float* values, int64_t num_rows, int64_t length,
                         int64_t stride) {
    constexpr int64_t kChunk = 16384;
    constexpr uint32_t kExponent = 0x7f800000;
    const int64_t num_chunks = (length + kChunk - 1) / kChunk;
    std::atomic<int64_t> total{0};
    pool.run(num_rows * num_chunks, [&](int64_t task, int) {
        const float* row = values + task / num_chunks * stride;
        const int64_t begin = task % num_chunks * kChunk, end = std::min(begin + kChunk, length);
        uint32_t count = 0;
        for (int64_t i = begin; i < end; ++i)
            count += (std::bit_cast<uint32_t>(row[i]) & kExponent) == kExponent;
        total.fetch_add(count, std::memory_order_relaxed);
    });
    return total;
}

// A heap of the k best so far, the worst of them on top. Ids come in ascending order, so one that only equals
// the worst is never better.
void top_k(const float* values, int64_t count, int64_t k, int32_t* ids) {
    if (k == 0) return;
    const auto is_better = [values](int32_t a, int32_t b) {
        return values[a] != values[b] ? values[a] > values[b] : a < b;
    };
    for (int64_t i = 0; i < k; ++i) ids[i] = static_cast<int32_t>(i);
    std::make_heap(ids, ids + k, is_better);
    const auto offer = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (values[i] <= values[ids[0]]) continue;
            std::pop_heap(ids, ids + k, is_better);
            ids[k - 1] = static_cast<int32_t>(i);
            std::push_heap(ids, ids + k, is_better);
        }
    };
    int64_t i = k;
    for (; i + kBlock <= count; i += kBlock)
        if (has_larger(values + i, values[ids[0]])) offer(i, i + kBlock);
    offer(i, count);
    std::sort_heap(ids, ids + k, is_better);
}

}  // namespace ktdesk
