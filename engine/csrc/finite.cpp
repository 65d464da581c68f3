#include "finite.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace ktdesk {

namespace {

template <class Element>
Element load(const uint8_t* p) {
    Element element;
    std::memcpy(&element, p, sizeof(element));
    return element;
}

// A float is no finite number where all bits of its exponent are set.
template <class Element, Element kExponent>
bool is_bad(const uint8_t* p) {
    return (load<Element>(p) & kExponent) == kExponent;
}

constexpr auto is_bad_half = is_bad<uint16_t, 0x7c00>;

// Where a block holds float16: the second is the first again where there is only one.
struct Halves {
    size_t first, second;
};

template <class Block>
constexpr Halves only_d() {
    return {offsetof(Block, d), offsetof(Block, d)};
}

constexpr Halves halves_of(WeightType type) {
    switch (type) {
        case Q4_1:
            return {offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m)};
        case Q5_1:
            return {offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m)};
        case Q2_K:
            return {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)};
        case Q4_K:
            return {offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin)};
        case Q5_K:
            return {offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin)};
        case Q3_K:
            return only_d<BlockQ3_K>();
        case Q6_K:
            return only_d<BlockQ6_K>();
        case TQ1_0:
            return only_d<BlockTQ1_0>();
        case TQ2_0:
            return only_d<BlockTQ2_0>();
        default:  // all others begin with d
            return {0, 0};
    }
}

// The four high nibbles of the last four words.
bool is_bad_iq1_m(const uint8_t* block) {
    const uint8_t* scales = reinterpret_cast<const BlockIQ1_M*>(block)->scales;
    unsigned d = 0;
    for (int i = 0; i < 4; ++i) d |= static_cast<unsigned>(scales[2 * i + 1] >> 4) << (4 * i);
    return (d & 0x7c00) == 0x7c00;
}

// Whether any of the blocks from `blocks` is bad: all are looked at, so that vectors can.
template <class IsBad>
bool has_bad(const uint8_t* blocks, int64_t num_blocks, int64_t block_bytes, const IsBad& is_bad_block) {
    int found = 0;
    for (int64_t i = 0; i < num_blocks; ++i) found |= is_bad_block(blocks + i * block_bytes);
    return found != 0;
}

template <class IsBad>
int64_t find_bad(const uint8_t* blocks, int64_t num_blocks, int64_t block_bytes, const IsBad& is_bad_block) {
    constexpr int64_t kStep = 1024;
    for (int64_t i = 0; i < num_blocks; i += kStep) {
        const int64_t count = std::min(kStep, num_blocks - i);
        if (!has_bad(blocks + i * block_bytes, count, block_bytes, is_bad_block)) continue;
        int64_t bad = i;
        while (!is_bad_block(blocks + bad * block_bytes)) ++bad;
        return bad * block_bytes;
    }
    return -1;
}

}  // namespace

int64_t first_bad_block(WeightType type, const uint8_t* blocks, int64_t num_bytes) {
    const auto find = [&](int64_t bytes, const auto& is_bad_block) {
        return find_bad(blocks, num_bytes / bytes, bytes, is_bad_block);
    };
    const Halves at = halves_of(type);
    switch (type) {
        case F32:
            return find(4, [](const uint8_t* p) { return is_bad<uint32_t, 0x7f800000>(p); });
        case F16:
            return find(2, [](const uint8_t* p) { return is_bad_half(p); });
        case BF16:
            return find(2, [](const uint8_t* p) { return is_bad<uint16_t, 0x7f80>(p); });
        case MXFP4:  // the largest exponent stands for NaN
            return find(sizeof(BlockMXFP4), [](const uint8_t* p) { return *p == 255; });
        case IQ1_M:
            return find(sizeof(BlockIQ1_M), is_bad_iq1_m);
        default:
            return find(block_bytes(type), [at](const uint8_t* p) {
                return is_bad_half(p + at.first) | is_bad_half(p + at.second);
            });
    }
}

}  // namespace ktdesk
