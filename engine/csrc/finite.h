// Finding weights that are no finite numbers, without unpacking them.
#pragma once

#include <cstdint>

#include "quants.h"

namespace ktdesk {

// Where in num_bytes (whole blocks) the first block begins whose scale, or whose value where blocks are
// single floats, is NaN or infinite; -1 where there is none.
int64_t first_bad_block(WeightType type, const uint8_t* blocks, int64_t num_bytes);

}  // namespace ktdesk
