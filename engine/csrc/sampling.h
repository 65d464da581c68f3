// What choosing a token asks of the logits of a whole vocabulary.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

// Of the values of rows that are `stride` apart, how many are infinite or no numbers.
int64_t count_not_finite(WorkerPool& pool, const float* values, int64_t num_rows, int64_t length,
                         int64_t stride);

// ids (k <= count): of the k largest values, the largest first, the lower id first among equals. The values
// are numbers.
void top_k(const float* values, int64_t count, int64_t k, int32_t* ids);

}  // namespace ktdesk
