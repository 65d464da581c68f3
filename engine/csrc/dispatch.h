// Which row kernels this processor and operating system allow.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace ktdesk {

// Narrowest first; "scalar" is always there. With variants: also the kernels that a listed set falls back to
// on machines that lack a part of it, so that they can be asked for by name.
std::vector<std::string> available_isas(bool with_variants);

// Null where the name is unknown or the machine lacks it.
const RowKernels* find_row_kernels(const std::string& isa);

// Empty where "amx" is available.
std::string why_no_amx();

}  // namespace ktdesk
