// Products with quantized matrices, and single rows of them.
#pragma once

#include <cstdint>

#include "worker_pool.h"

namespace ktdesk {

// Rows of weights as they lie in the file: (num_rows, length), row_bytes apart, at any alignment.
struct Matrix {
    WeightType type;
    const uint8_t* rows;
    int64_t row_bytes;
    int64_t num_rows;
    int64_t length;
};

// Rows that one task unpacks before it multiplies them with all tokens: enough that the inputs are not read
// too often, few enough that the unpacked rows stay in the second-level cache.
constexpr int64_t kRowsPerTask = 16;

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
