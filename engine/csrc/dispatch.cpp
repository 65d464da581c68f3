#include "dispatch.h"

#ifdef KTDESK_X86
#include <cpuid.h>
#endif

#if defined(KTDESK_X86) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#endif

namespace ktdesk {

const RowKernels& scalar_kernels();
#ifdef KTDESK_X86
const RowKernels& avx2_kernels();
const RowKernels& avx512_kernels();
const RowKernels& avx512_vnni_kernels();
const RowKernels& amx_kernels();
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
enum CpuidRegister { kEax, kEbx, kEcx, kEdx };

// For what the compiler has no name.
bool cpuid_bit(unsigned leaf, unsigned subleaf, CpuidRegister in, int bit) {
    unsigned registers[4] = {};
    __get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2], &registers[3]);
    return registers[in] >> bit & 1;
}

// XCR0 has a bit for the tiles' configuration and one for their data.
bool operating_system_saves_tiles() {
    constexpr unsigned kTiles = 3u << 17;
    unsigned low, high;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & kTiles) == kTiles;
}

// Tile data is large: Linux keeps room for it only in processes that ask, once, and may refuse. 0, or the
// error.
int tile_permission() {
#ifdef __linux__
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    static const int error = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
    return error;
#else
    return ENOSYS;
#endif
}

// The builtin asks CPUID and, for the wide registers, whether the operating system saves them (XCR0). Each
// flag is tested: a hypervisor can mask one of a family.
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

// Beside the tiles: what unpacks to them.
bool has_amx_flags() {
    return has_avx512() && __builtin_cpu_supports("avx512vnni") && cpuid_bit(7, 1, kEax, 5) &&  // AVX512_BF16
           cpuid_bit(7, 0, kEdx, 23) &&                                                         // AVX512_FP16
           cpuid_bit(7, 0, kEdx, 22) && cpuid_bit(7, 0, kEdx, 24) && cpuid_bit(7, 0, kEdx, 25) &&  // AMX
           operating_system_saves_tiles();
}

bool has_amx() { return has_amx_flags() && tile_permission() == 0; }

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
    {"amx", false, has_amx, amx_kernels},
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

std::string why_no_amx() {
#ifdef KTDESK_X86
    if (!cpuid_bit(7, 0, kEdx, 24)) return "the processor has no AMX";
    if (!has_amx_flags()) return "the processor or the operating system masks a part of AMX or AVX-512";
    if (const int error = tile_permission())
        return std::string("the operating system refuses this process the use of tiles (") +
               std::strerror(error) + ")";
    return {};
#else
    return "the processor has no AMX";
#endif
}

}  // namespace ktdesk
