// Products with quantized matrices, and single rows of them.
#pragma once

#include <cstdint>

#include "panels.h"
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
    int64_t num_panels() const { return ktdesk::num_panels(num_rows); }
    // Rows of a panel that are there.
    int64_t rows_of(int64_t panel) const {
        return num_rows - panel * kPanelRows < kPanelRows ? num_rows - panel * kPanelRows : kPanelRows;
    }
    int64_t bytes_of_panel() const { return (is_packed ? 1 : kPanelRows) * row_bytes; }
    // Where a panel begins, or its rows.
    const uint8_t* at(int64_t panel) const { return rows + panel * bytes_of_panel(); }
};

// What matrices are multiplied with: the same vectors in the form that rows want and in the one that panels
// want.
struct Inputs {
    const float* const* vectors;
    QuantizedRows quantized;
    const int32_t* row_ids;  // of each vector, in quantized

    Inputs from(int64_t i) const { return {vectors + i, quantized, row_ids + i}; }
};

// Rows of x go through a run of panels in blocks: the rows of a block stay in the first cache, and the panels
// in the second. Rows of weights that have to be unpacked are better multiplied with more at once.
constexpr int64_t kTokenBlock = 8, kTokenBlockUnpacked = 64;
constexpr int64_t kBlockedBytes = 512 * 1024;

static inline int64_t token_block(const Matrix& matrix) {
    return matrix.is_packed ? kTokenBlock : kTokenBlockUnpacked;
}

// The longest run of panels for so many tokens, of which each takes panel_bytes.
static inline int64_t longest_run(int64_t num_tokens, int64_t panel_bytes) {
    return num_tokens <= kTokenBlock ? INT64_MAX : (kBlockedBytes + panel_bytes - 1) / panel_bytes;
}

// outputs[t][column + r] = row 16 * panel + r of the matrix times vector t, for t < num_tokens.
// scratch: kPanelRows * length floats, for rows that are not packed.
void multiply_panel_rows(const RowKernels& kernels, const Matrix& matrix, int64_t panel, const Inputs& inputs,
                         int64_t num_tokens, const Ahead& ahead, float* scratch, float* const* outputs,
                         int64_t column);

// Quantizes x (num_rows, length) into the buffer.
QuantizedRows quantize_rows(WorkerPool& pool, WorkerPool::BufferName buffer, const float* x, int64_t num_rows,
                            int64_t length);

// Memory for so many quantized rows.
QuantizedRows reserve_quantized_rows(Buffer& buffer, int64_t num_rows, int64_t length);

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
