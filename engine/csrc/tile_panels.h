// Runs of panels through tiles (tiles.h).
#pragma once

#include "linear.h"

namespace ktdesk {

// Of the form that the pool's rows are to have; null where its instruction set has no tiles.
const TileKernels* tile_kernels(const WorkerPool& pool);

// Whether the pool's instruction set has tiles for the matrix.
bool has_tiles(const WorkerPool& pool, const Matrix& matrix);

// What a thread needs while it multiplies up to num_panels panels of matrices with rows of `length`.
int64_t tile_scratch_floats(const Matrix& matrix, int64_t num_panels);

// outputs[t][columns[i] + r] = row r of panel panels[i] of matrices[i], times row t. Panels of one type go
// together.
struct TilePart {
    const Matrix* matrix;
    int64_t panel;
    int64_t column;
};
void multiply_tile_parts(const WorkerPool& pool, const TilePart* parts, int64_t num_parts,
                         const TileRows& rows, float* const* outputs, float* scratch);

// Memory for so many rows.
TileRows reserve_tile_rows(Buffer& buffer, int64_t num_rows, int64_t length);

// Rows that were stored one by one, as they would have been stored into block `block` of `to`: its row i is
// row ids[i].
void copy_tile_block(const TileRows& from, const int32_t* ids, const TileRows& to, int64_t block);

// Loads a thread's tile configuration for as long as it lives, where there are tiles to be used.
class TileConfiguration {
  public:
    explicit TileConfiguration(const TileKernels* tiles) : tiles_(tiles) {
        if (tiles_) tiles_->configure();
    }
    ~TileConfiguration() {
        if (tiles_) tiles_->release();
    }
    TileConfiguration(const TileConfiguration&) = delete;
    TileConfiguration& operator=(const TileConfiguration&) = delete;

  private:
    const TileKernels* tiles_;
};

}  // namespace ktdesk
