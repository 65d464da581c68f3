// Rows as they lie in the file -> panels (panels.h), and the look at them that loading takes.
#pragma once

#include "linear.h"
#include "panels.h"

namespace ktdesk {

// Matrices of one shape, as they lie in the file, `stride` bytes apart.
struct MatrixStack {
    Matrix first;
    int64_t num_matrices;
    int64_t stride;
};

// Both functions read each row once and return where, counted from the first matrix, the first block lies
// whose scale is no finite number (finite.h), or -1.

// panels: for each matrix num_panels(num_rows) * panel_bytes(type, length) bytes at a cache line. The type
// and the length have panels.
int64_t pack(WorkerPool& pool, const MatrixStack& stack, uint8_t* panels);

int64_t check(WorkerPool& pool, const MatrixStack& stack);

}  // namespace ktdesk
