// Rows as they lie in the file -> panels (panels.h).
#pragma once

#include "linear.h"
#include "panels.h"

namespace ktdesk {

// panels: num_panels(matrix.num_rows) * panel_bytes(type, length) bytes at a cache line. The type has panels.
void pack(WorkerPool& pool, const Matrix& matrix, uint8_t* panels);

}  // namespace ktdesk
