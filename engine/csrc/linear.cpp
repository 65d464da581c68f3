#include "linear.h"

#include <algorithm>

#include "chunks.h"
#include "tile_panels.h"

namespace ktdesk {

const float* unpack_rows(const RowKernels& kernels, const Matrix& matrix, int64_t first, int64_t count,
                         float* scratch) {
    const uint8_t* rows = matrix.rows + first * matrix.row_bytes;
    const bool is_ready = matrix.type == F32 && reinterpret_cast<uintptr_t>(rows) % alignof(float) == 0 &&
                          matrix.row_bytes == matrix.length * static_cast<int64_t>(sizeof(float));
    if (is_ready) return reinterpret_cast<const float*>(rows);
    const DequantizeRow dequantize = kernels.dequantize[static_cast<int>(matrix.type)];
    for (int64_t r = 0; r < count; ++r)
        dequantize(rows + r * matrix.row_bytes, scratch + r * matrix.length, matrix.length);
    return scratch;
}

void multiply_panel_rows(const RowKernels& kernels, const Matrix& matrix, int64_t panel, const Inputs& inputs,
                         int64_t num_tokens, const Ahead& ahead, float* scratch, float* const* outputs,
                         int64_t column) {
    const int64_t count = matrix.rows_of(panel);
    if (matrix.takes_bytes()) {
        kernels.multiply_panel[matrix.type](
            {matrix.at(panel), &inputs.quantized, inputs.row_ids, num_tokens, outputs, column, count, ahead});
    } else if (matrix.is_packed) {
        kernels.multiply_float_panel[matrix.type](matrix.at(panel), matrix.length, inputs.vectors, num_tokens,
                                                  outputs, column, count);
    } else {
        const float* weights = unpack_rows(kernels, matrix, panel * kPanelRows, count, scratch);
        kernels.matmul(weights, count, matrix.length, inputs.vectors, num_tokens, outputs, column);
    }
}

QuantizedRows reserve_quantized_rows(Buffer& buffer, int64_t num_rows, int64_t length) {
    QuantizedRows rows = {nullptr, length};
    rows.data = buffer.reserve_array<uint8_t>(num_rows * rows.row_bytes());
    return rows;
}

QuantizedRows quantize_rows(WorkerPool& pool, WorkerPool::BufferName buffer, const float* x, int64_t num_rows,
                            int64_t length) {
    const QuantizedRows rows = reserve_quantized_rows(pool.buffer(buffer), num_rows, length);
    pool.run(num_rows, [&](int64_t row, int) { pool.kernels().quantize_row(x + row * length, rows, row); });
    return rows;
}

namespace {

// One product of a matrix: what its tasks share.
struct LinearProduct {
    WorkerPool& pool;
    const Matrix& matrix;
    const float* bias;
    int64_t num_tokens;
    Inputs inputs;
    TileRows tile_rows;  // without data: vectors are used
    float** outputs;

    void add_bias(int64_t first, int64_t last) const {
        if (!bias) return;
        for (int64_t t = 0; t < num_tokens; ++t)
            for (int64_t r = first; r < last; ++r) outputs[t][r] += bias[r];
    }

    void on_vectors(const Chunk& chunk, const ChunkQueue& queue, int thread) const {
        const int64_t end = chunk.first + chunk.count, block = token_block(matrix);
        for (int64_t t = 0; t < num_tokens; t += block)
            for (int64_t panel = chunk.first; panel < end; ++panel) {
                const Chunk* next = queue.peek(thread);
                multiply_panel_rows(pool.kernels(), matrix, panel, inputs.from(t),
                                    std::min(block, num_tokens - t),
                                    {matrix.at(end), matrix.at(next ? next->first : chunk.first)},
                                    pool.scratch(thread), outputs + t, panel * kPanelRows);
            }
    }

    void on_tiles(const Chunk& chunk, int thread) const {
        TilePart parts[2];
        for (int64_t done = 0; done < chunk.count; done += 2) {
            const int64_t count = std::min<int64_t>(2, chunk.count - done);
            for (int64_t i = 0; i < count; ++i) {
                const int64_t panel = chunk.first + done + i;
                parts[i] = {&matrix, panel, panel * kPanelRows};
            }
            multiply_tile_parts(pool, parts, count, tile_rows, outputs, pool.scratch(thread));
        }
    }

    void run() const {
        ChunkQueue queue(pool, matrix.num_panels(), 1);
        queue.add(0, 1, tile_rows.data ? 2 : 1, longest_run(num_tokens, matrix.bytes_of_panel()));
        pool.run(std::min<int64_t>(pool.num_threads(), matrix.num_panels()), [&](int64_t, int thread) {
            const TileConfiguration configuration(tile_rows.data ? tile_kernels(pool) : nullptr);
            while (const Chunk* chunk = queue.take(thread)) {
                tile_rows.data ? on_tiles(*chunk, thread) : on_vectors(*chunk, queue, thread);
                add_bias(chunk->first * kPanelRows,
                         std::min((chunk->first + chunk->count) * kPanelRows, matrix.num_rows));
            }
        });
    }
};

// What a batch's rows may take of the second-level cache, where each pair of panels is multiplied with all of
// them: the panels are unpacked again for the next rows, which costs less than rows from far away.
constexpr int64_t kTileRowsBytes = 768 * 1024;

// Rows that go through tiles together: about equal shares, whole tiles.
int64_t rows_at_once(int64_t num_rows, int64_t length) {
    const int64_t most = std::max<int64_t>(kTileRowsBytes / tile_rows_bytes(kTileRows, length), 3);
    const int64_t num_blocks = num_tile_blocks(num_rows), num_shares = (num_blocks + most - 1) / most;
    return (num_blocks + num_shares - 1) / num_shares * kTileRows;
}

TileRows store_tile_rows(WorkerPool& pool, const float* x, int64_t num_rows, int64_t length) {
    const TileRows rows = reserve_tile_rows(pool.buffer(WorkerPool::kTileInputs), num_rows, length);
    pool.run(num_rows, [&](int64_t row, int) { tile_kernels(pool)->store_row(x + row * length, rows, row); });
    return rows;
}

}  // namespace

void linear(WorkerPool& pool, const Matrix& matrix, const float* bias, const float* x, int64_t num_tokens,
            float* out) {
    const float** vectors = pool.buffer(WorkerPool::kPointers).reserve_array<const float*>(2 * num_tokens);
    float** outputs = const_cast<float**>(vectors + num_tokens);
    int32_t* row_ids = pool.buffer(WorkerPool::kRowIds).reserve_array<int32_t>(num_tokens);
    for (int64_t t = 0; t < num_tokens; ++t) {
        vectors[t] = x + t * matrix.length;
        outputs[t] = out + t * matrix.num_rows;
        row_ids[t] = static_cast<int32_t>(t);
    }
    LinearProduct product = {pool, matrix, bias, num_tokens, {vectors, {}, row_ids}, {}, outputs};
    // Rows of floats are routers: to round them would send tokens to other experts.
    const bool is_exact = matrix.type == F32 && !matrix.is_packed;
    if (num_tokens >= pool.tuning.min_tile_rows && has_tiles(pool, matrix) && !is_exact) {
        pool.reserve_scratch(tile_scratch_floats(matrix, 2));
        const TileRows all = store_tile_rows(pool, x, num_tokens, matrix.length);
        const int64_t at_once = rows_at_once(num_tokens, matrix.length);
        for (int64_t t = 0; t < num_tokens; t += at_once) {
            product.num_tokens = std::min(at_once, num_tokens - t);
            product.tile_rows = {all.block(t), product.num_tokens, matrix.length};
            product.outputs = outputs + t;
            product.run();
        }
        return;
    }
    if (matrix.takes_bytes()) {
        product.inputs.quantized = quantize_rows(pool, WorkerPool::kQuantized, x, num_tokens, matrix.length);
    } else {
        pool.reserve_scratch(kPanelRows * matrix.length);  // not read where panels hold floats
    }
    product.run();
}

void get_rows(WorkerPool& pool, const Matrix& matrix, const int32_t* ids, int64_t num_ids, float* out) {
    const DequantizeRow dequantize = pool.kernels().dequantize[static_cast<int>(matrix.type)];
    pool.run(num_ids, [&](int64_t i, int) {
        dequantize(matrix.rows + ids[i] * matrix.row_bytes, out + i * matrix.length, matrix.length);
    });
}

}  // namespace ktdesk
