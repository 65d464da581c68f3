// Attention on tile registers (attention_tile.h): AMX with bfloat16, beside AVX-512 with BF16.
//
// Scores are keys times queries: 16 positions below each other, 16 queries side by side. Keys then go into
// tiles as they lie in the cache, and softmax runs along positions, from vector to vector, one lane a query.
// Shares are turned around once for the product with values.
//
// All tile instructions are written out with a memory clobber: the compiler's intrinsics have none, and
// stores into a tile's memory could be moved past the load.
#include <immintrin.h>

#include <cstring>

#include "../attention_tile.h"

namespace ktdesk {
namespace {

template <typename T>
T load_as(const uint8_t* bytes) {
    T value;
    memcpy(&value, bytes, sizeof(T));
    return value;
}

__m128i load16(const void* bytes) { return _mm_loadu_si128(static_cast<const __m128i*>(bytes)); }
__m256i load32(const void* bytes) { return _mm256_loadu_si256(static_cast<const __m256i*>(bytes)); }

#include "vec_avx512.inl"
#include "vec_math_avx512.inl"
#include "cache_loads.inl"
#include "tile_attention.inl"

}  // namespace

const TileAttention& amx_tile_attention() {
    static const TileAttention table = make_tile_attention();
    return table;
}

}  // namespace ktdesk
