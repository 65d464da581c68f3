#include "linear.h"

#include <algorithm>

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

void multiply_rows(const RowKernels& kernels, const Matrix& matrix, int64_t first, const Inputs& inputs,
                   int64_t begin, int64_t num_tokens, float* scratch, float* const* outputs) {
    const int64_t count = std::min(kRowsPerTask, matrix.num_rows - first);
    const uint8_t* panel = matrix.rows + first / kPanelRows * matrix.row_bytes;
    if (matrix.takes_bytes()) {
        kernels.multiply_panel[matrix.type](panel, inputs.quantized, inputs.row_ids + begin, num_tokens,
                                            outputs, first, count);
    } else if (matrix.is_packed) {
        kernels.multiply_float_panel[matrix.type](panel, matrix.length, inputs.vectors + begin, num_tokens,
                                                  outputs, first, count);
    } else {
        const float* weights = unpack_rows(kernels, matrix, first, count, scratch);
        kernels.matmul(weights, count, matrix.length, inputs.vectors + begin, num_tokens, outputs, first);
    }
}

QuantizedRows quantize_rows(WorkerPool& pool, WorkerPool::BufferName buffer, const float* x, int64_t num_rows,
                            int64_t length) {
    void* memory = pool.buffer(buffer).reserve(static_cast<size_t>(quantized_rows_bytes(num_rows, length)));
    const QuantizedRows rows = quantized_rows_in(memory, num_rows, length);
    pool.run(num_rows, [&](int64_t row, int) { quantize_row(x + row * length, row, rows); });
    return rows;
}

void linear(WorkerPool& pool, const Matrix& matrix, const float* bias, const float* x, int64_t num_tokens,
            float* out) {
    const RowKernels& kernels = pool.kernels();
    const float** vectors = pool.buffer(WorkerPool::kPointers).reserve_array<const float*>(2 * num_tokens);
    float** outputs = const_cast<float**>(vectors + num_tokens);
    int32_t* row_ids = pool.buffer(WorkerPool::kRowIds).reserve_array<int32_t>(num_tokens);
    for (int64_t t = 0; t < num_tokens; ++t) {
        vectors[t] = x + t * matrix.length;
        outputs[t] = out + t * matrix.num_rows;
        row_ids[t] = static_cast<int32_t>(t);
    }
    Inputs inputs = {vectors, {}, row_ids};
    if (matrix.takes_bytes())
        inputs.quantized = quantize_rows(pool, WorkerPool::kQuantized, x, num_tokens, matrix.length);
    else
        pool.reserve_scratch(kRowsPerTask * matrix.length);
    pool.run(num_tasks(matrix), [&](int64_t task, int thread) {
        const int64_t first = task * kRowsPerTask, last = std::min(first + kRowsPerTask, matrix.num_rows);
        multiply_rows(kernels, matrix, first, inputs, 0, num_tokens, pool.scratch(thread), outputs);
        if (!bias) return;
        for (int64_t t = 0; t < num_tokens; ++t)
            for (int64_t r = first; r < last; ++r) outputs[t][r] += bias[r];
    });
}

void linear_per_head(WorkerPool& pool, const HeadMatrices& matrices, const HeadVectors& x, int64_t num_tokens,
                     float* out) {
    const RowKernels& kernels = pool.kernels();
    const int64_t num_heads = matrices.num_heads, num_rows = matrices.first.num_rows;
    const float** inputs =
        pool.buffer(WorkerPool::kPointers).reserve_array<const float*>(2 * num_heads * num_tokens);
    float** outputs = const_cast<float**>(inputs + num_heads * num_tokens);
    for (int64_t h = 0; h < num_heads; ++h)
        for (int64_t t = 0; t < num_tokens; ++t) {
            inputs[h * num_tokens + t] = x.data + t * x.token_stride + h * x.head_stride;
            outputs[h * num_tokens + t] = out + (t * num_heads + h) * num_rows;
        }
    pool.reserve_scratch(kRowsPerTask * matrices.first.length);
    const int64_t chunks = (num_rows + kRowsPerTask - 1) / kRowsPerTask;
    pool.run(num_heads * chunks, [&](int64_t task, int thread) {
        const int64_t h = task / chunks, first = task % chunks * kRowsPerTask;
        const int64_t count = std::min(kRowsPerTask, num_rows - first);
        Matrix matrix = matrices.first;
        matrix.rows += h * matrices.head_bytes;
        const float* weights = unpack_rows(kernels, matrix, first, count, pool.scratch(thread));
        kernels.matmul(weights, count, matrix.length, inputs + h * num_tokens, num_tokens,
                       outputs + h * num_tokens, first);
    });
}

void get_rows(WorkerPool& pool, const Matrix& matrix, const int32_t* ids, int64_t num_ids, float* out) {
    const DequantizeRow dequantize = pool.kernels().dequantize[static_cast<int>(matrix.type)];
    pool.run(num_ids, [&](int64_t i, int) {
        dequantize(matrix.rows + ids[i] * matrix.row_bytes, out + i * matrix.length, matrix.length);
    });
}

}  // namespace ktdesk
