// Which row kernels this processor and operating system allow.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace ktdesk {

// Narrowest first; "scalar" is always there.
std::vector<std::string> available_isas();

// Null where the name is unknown or the machine lacks it.
const RowKernels* find_row_kernels(const std::string& isa);

}  // namespace ktdesk
