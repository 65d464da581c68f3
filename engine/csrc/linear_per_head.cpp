#include <algorithm>

#include "chunks.h"
#include "linear.h"
#include "tile_panels.h"

namespace ktdesk {

namespace {

// A product for each head: vectors and results lie head by head.
struct HeadProducts {
    WorkerPool& pool;
    const HeadMatrices& matrices;
    int64_t num_tokens;
    Inputs inputs;  // of all heads
    uint8_t* tile_data = nullptr;
    float** outputs;

    int64_t num_rows() const { return matrices.num_heads * num_tokens; }

    TileRows tile_rows(int64_t head) const {
        const int64_t length = matrices.first.length;
        return {tile_data + head * tile_rows_bytes(num_tokens, length), num_tokens, length};
    }

    void place(const HeadVectors& x, float* out) {
        const float** vectors =
            pool.buffer(WorkerPool::kPointers).reserve_array<const float*>(2 * num_rows());
        int32_t* row_ids = pool.buffer(WorkerPool::kRowIds).reserve_array<int32_t>(num_rows());
        outputs = const_cast<float**>(vectors + num_rows());
        for (int64_t h = 0; h < matrices.num_heads; ++h)
            for (int64_t t = 0; t < num_tokens; ++t) {
                const int64_t i = h * num_tokens + t;
                vectors[i] = x.data + t * x.token_stride + h * x.head_stride;
                outputs[i] = out + (t * matrices.num_heads + h) * matrices.first.num_rows;
                row_ids[i] = static_cast<int32_t>(i);
            }
        inputs = {vectors, {}, row_ids};
    }

    // The vectors in the form that the kernels want, and room for the kernels.
    void prepare() {
        const Matrix& matrix = matrices.first;
        if (num_tokens >= pool.tuning.min_tile_rows && has_tiles(pool, matrix)) {
            const int64_t bytes = matrices.num_heads * tile_rows_bytes(num_tokens, matrix.length);
            tile_data = pool.buffer(WorkerPool::kTileInputs).reserve_array<uint8_t>(bytes);
            pool.reserve_scratch(tile_scratch_floats(matrix, kMaxTilePanels));
        } else if (matrix.takes_bytes()) {
            inputs.quantized =
                reserve_quantized_rows(pool.buffer(WorkerPool::kQuantized), num_rows(), matrix.length);
        } else {
            pool.reserve_scratch(kPanelRows * matrix.length);
            return;
        }
        pool.run(num_rows(), [&](int64_t i, int) {
            const float* x = inputs.vectors[i];
            if (tile_data)
                tile_kernels(pool)->store_row(x, tile_rows(i / num_tokens), i % num_tokens);
            else
                pool.kernels().quantize_row(x, inputs.quantized, i);
        });
    }

    // Up to kMaxTilePanels panels of a head.
    void multiply(const Chunk& chunk, float* scratch) const {
        const int64_t head = chunk.group, end = chunk.first + chunk.count;
        Matrix matrix = matrices.first;
        matrix.rows += head * matrices.head_bytes;
        float** const to = outputs + head * num_tokens;
        if (tile_data) {
            TilePart parts[kMaxTilePanels];
            for (int64_t p = chunk.first; p < end; ++p) parts[p - chunk.first] = {&matrix, p, p * kPanelRows};
            multiply_tile_parts(pool, parts, chunk.count, tile_rows(head), to, scratch);
            return;
        }
        for (int64_t p = chunk.first; p < end; ++p)
            multiply_panel_rows(pool.kernels(), matrix, p, inputs.from(head * num_tokens), num_tokens,
                                {matrix.at(end), matrix.at(end)}, scratch, to, p * kPanelRows);
    }

    void run() const {
        ChunkQueue queue(pool, matrices.first.num_panels(), matrices.num_heads);
        for (int64_t head = 0; head < matrices.num_heads; ++head)
            queue.add(head, 1, kMaxTilePanels, kMaxTilePanels);
        pool.run(pool.num_threads(), [&](int64_t, int thread) {
            const TileConfiguration configuration(tile_data ? tile_kernels(pool) : nullptr);
            while (const Chunk* chunk = queue.take(thread)) multiply(*chunk, pool.scratch(thread));
        });
    }
};

}  // namespace

void linear_per_head(WorkerPool& pool, const HeadMatrices& matrices, const HeadVectors& x, int64_t num_tokens,
                     float* out) {
    HeadProducts products = {pool, matrices, num_tokens, {}, nullptr, nullptr};
    products.place(x, out);
    products.prepare();
    products.run();
}

}  // namespace ktdesk
