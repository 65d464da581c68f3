// What this machine can do at best, measured by the threads and the instruction set of a pool.
#pragma once

#include <cstdint>
#include <string>

#include "worker_pool.h"

namespace ktdesk {

struct Probe {
    double seconds;   // from the first task to the last
    double amount;    // bytes, or multiplications and additions
    double checksum;  // depends on everything that was read or computed
};

// Writes to every page of the buffer, so that it is memory of the machine and not the one page of zeros.
void touch(WorkerPool& pool, uint8_t* data, int64_t num_bytes);

// All threads read the buffer once, in pieces that they take in turn. num_bytes: a multiple of 256.
Probe probe_read(WorkerPool& pool, const uint8_t* data, int64_t num_bytes);

// The loop of that name in the pool's table; null where it has none.
const PeakLoop* find_peak(const WorkerPool& pool, const std::string& name);

// All threads together do num_rounds of the loop, or a few more, on operands that stay in the first-level
// cache.
Probe probe_peak(WorkerPool& pool, const PeakLoop& peak, int64_t num_rounds);

}  // namespace ktdesk
