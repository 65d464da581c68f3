// What choosing a token asks of the logits of a whole vocabulary.
#pragma once

#include <cstdint>

namespace ktdesk {

bool all_finite(const float* values, int64_t count);

// ids (k <= count): of the k largest values, the largest first, the lower id first among equals. The values
// are numbers.
void top_k(const float* values, int64_t count, int64_t k, int32_t* ids);

}  // namespace ktdesk
