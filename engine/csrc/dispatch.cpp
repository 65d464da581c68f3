#include "dispatch.h"

namespace ktdesk {

const RowKernels& scalar_kernels();
#ifdef KTDESK_X86
const RowKernels& avx2_kernels();
const RowKernels& avx512_kernels();
const RowKernels& avx512_vnni_kernels();
#endif

namespace {

struct Isa {
    const char* name;
    bool is_variant;  // what a listed set falls back to
    bool (*allowed)();
    const RowKernels& (*kernels)();
};

bool always() { return true; }

#ifdef KTDESK_X86
// The builtin asks CPUID and, for the wide registers, whether the operating system saves them (XCR0). Each
// flag is tested: a hypervisor can mask one of a family.
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

const RowKernels& best_avx512_kernels() {
    return __builtin_cpu_supports("avx512vnni") ? avx512_vnni_kernels() : avx512_kernels();
}
#endif

const Isa kIsas[] = {
    {"scalar", false, always, scalar_kernels},
#ifdef KTDESK_X86
    {"avx2", false, has_avx2, avx2_kernels},
    {"avx512", false, has_avx512, best_avx512_kernels},
    {"avx512-without-vnni", true, has_avx512, avx512_kernels},
#endif
};

}  // namespace

std::vector<std::string> available_isas(bool with_variants) {
    std::vector<std::string> names;
    for (const Isa& isa : kIsas)
        if ((with_variants || !isa.is_variant) && isa.allowed()) names.emplace_back(isa.name);
    return names;
}

const RowKernels* find_row_kernels(const std::string& name) {
    for (const Isa& isa : kIsas)
        if (name == isa.name && isa.allowed()) return &isa.kernels();
    return nullptr;
}

}  // namespace ktdesk
