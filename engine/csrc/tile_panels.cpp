#include "tile_panels.h"

#include <algorithm>
#include <cstring>

namespace ktdesk {

namespace {

// The type whose kernel takes the matrix: rows that are not packed go as floats.
WeightType tile_type(const Matrix& matrix) { return matrix.is_packed ? matrix.type : F32; }

// The 16 rows of a panel as floats. Those that are not there may hold anything, but must be memory.
const uint8_t* float_panel(const RowKernels& kernels, const TilePart& part, float* scratch) {
    const int64_t length = part.matrix->length, count = part.matrix->rows_of(part.panel);
    const float* rows = unpack_rows(kernels, *part.matrix, part.panel * kPanelRows, count, scratch);
    if (count < kPanelRows && rows != scratch) {
        std::memcpy(scratch, rows, static_cast<size_t>(count * length) * sizeof(float));
        rows = scratch;
    }
    return reinterpret_cast<const uint8_t*>(rows);
}

}  // namespace

const TileKernels* tile_kernels(const WorkerPool& pool) {
    return pool.tuning.rounds_to_bfloat16 ? pool.kernels().bfloat16_tiles : pool.kernels().tiles;
}

bool has_tiles(const WorkerPool& pool, const Matrix& matrix) {
    const TileKernels* tiles = tile_kernels(pool);
    return tiles && tiles->multiply[tile_type(matrix)] && matrix.length % kTileValues == 0 &&
           matrix.length <= kMaxTileLength;
}

TileRows reserve_tile_rows(Buffer& buffer, int64_t num_rows, int64_t length) {
    return {buffer.reserve_array<uint8_t>(tile_rows_bytes(num_rows, length)), num_rows, length};
}

void copy_tile_block(const TileRows& from, const int32_t* ids, const TileRows& to, int64_t block) {
    const int64_t first = block * kTileRows, count = std::min(kTileRows, to.num_rows - first);
    for (int64_t tile = 0; tile < to.num_tiles(); ++tile)
        for (int64_t i = 0; i < count; ++i)
            std::memcpy(to.row(first + i) + tile * to.tile_bytes(),
                        from.row(ids[i]) + tile * from.tile_bytes(), kTileStride);
    for (int64_t i = 0; i < count; ++i)
        for (int64_t fact = 0; fact < kTileRowFacts / kTileStride; ++fact)
            std::memcpy(to.facts(first + i) + 4 * fact * to.block_rows,
                        from.facts(ids[i]) + 4 * fact * from.block_rows, 4);
}

int64_t tile_scratch_floats(const Matrix& matrix, int64_t num_panels) {
    const int64_t rows = matrix.is_packed ? 0 : num_panels * kPanelRows * matrix.length;
    return rows + tile_scratch_bytes(num_panels, matrix.length) / static_cast<int64_t>(sizeof(float));
}

void multiply_tile_parts(const WorkerPool& pool, const TilePart* parts, int64_t num_parts,
                         const TileRows& rows, float* const* outputs, float* scratch) {
    for (int64_t i = 0; i < num_parts;) {
        const WeightType type = tile_type(*parts[i].matrix);
        TilePanel panels[kMaxTilePanels];
        int64_t count = 0;
        float* memory = scratch;
        for (; i < num_parts && count < kMaxTilePanels && tile_type(*parts[i].matrix) == type; ++i, ++count) {
            const Matrix& matrix = *parts[i].matrix;
            const uint8_t* data =
                matrix.is_packed ? matrix.at(parts[i].panel) : float_panel(pool.kernels(), parts[i], memory);
            if (!matrix.is_packed) memory += kPanelRows * matrix.length;
            panels[count] = {data, parts[i].column, matrix.rows_of(parts[i].panel)};
        }
        tile_kernels(pool)->multiply[type](panels, count, rows, outputs, reinterpret_cast<uint8_t*>(memory));
    }
}

}  // namespace ktdesk
