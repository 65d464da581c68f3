// Products with quantized matrices, and single rows of them.
#pragma once

#include <cstdint>

#include "panels.h"
#include "quantized_rows.h"
#include "worker_pool.h"

namespace ktdesk {

// Weights (num_rows, length): rows as they lie in the file, row_bytes apart, at any alignment, or packed in
// panels, panel_bytes(type, length) apart.
struct Matrix {
    WeightType type;
    const uint8_t* rows;  // or the first panel
    int64_t row_bytes;    // or the bytes of a panel
    int64_t num_rows;
    int64_t length;
    bool is_packed = false;

    bool takes_bytes() const { return is_packed && !has_float_panels(type); }
};

// Rows that one task multiplies with all tokens: a panel. Enough that the inputs are not read too often, few
// enough that rows unpacked to floats stay in the second-level cache.
constexpr int64_t kRowsPerTask = kPanelRows;

static inline int64_t num_tasks(const Matrix& matrix) {
    return (matrix.num_rows + kRowsPerTask - 1) / kRowsPerTask;
}

// What matrices are multiplied with: the same vectors in the form that rows want and in the one that panels
// want.
struct Inputs {
    const float* const* vectors;
    QuantizedRows quantized;
    const int32_t* row_ids;  // of each vector, in quantized
};

// outputs[t][r] = row r times vector begin + t, for the kRowsPerTask rows from first (a multiple of it) and
// t < num_tokens. scratch: kRowsPerTask * length floats.
void multiply_rows(const RowKernels& kernels, const Matrix& matrix, int64_t first, const Inputs& inputs,
                   int64_t begin, int64_t num_tokens, float* scratch, float* const* outputs);

// Quantizes x (num_rows, length) into the buffer.
QuantizedRows quantize_rows(WorkerPool& pool, WorkerPool::BufferName buffer, const float* x, int64_t num_rows,
                            int64_t length);

// The floats of rows first..first+count-1: in the file itself where they lie there ready to use, else
// unpacked into scratch (count * length floats).
const float* unpack_rows(const RowKernels& kernels, const Matrix& matrix, int64_t first, int64_t count,
                         float* scratch);

// out (num_tokens, num_rows) = x (num_tokens, length) * matrix^T + bias (num_rows, or null)
void linear(WorkerPool& pool, const Matrix& matrix, const float* bias, const float* x, int64_t num_tokens,
            float* out);

// One matrix for each head: that of head h lies head_bytes * h further.
struct HeadMatrices {
    Matrix first;
    int64_t head_bytes;
    int64_t num_heads;
};

// The vector of head h of token t: data + t * token_stride + h * head_stride.
struct HeadVectors {
    const float* data;
    int64_t token_stride, head_stride;
};

// out[t, h] (num_tokens, num_heads, num_rows) = matrix of head h * x[t, h]
void linear_per_head(WorkerPool& pool, const HeadMatrices& matrices, const HeadVectors& x, int64_t num_tokens,
                     float* out);

// out (num_ids, length): the rows `ids`, each in 0..num_rows-1.
void get_rows(WorkerPool& pool, const Matrix& matrix, const int32_t* ids, int64_t num_ids, float* out);

}  // namespace ktdesk
