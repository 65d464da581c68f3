#include "probes.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace ktdesk {

namespace {

constexpr int64_t kPage = 4096;

// Long enough that taking a piece costs nothing, short enough that the threads end together.
constexpr int64_t kPieceBytes = 1 << 21;
constexpr int64_t kPiecesPerThread = 16;

struct alignas(64) Checksum {
    double value = 0;
};

// Runs task(index), which returns a number, on all threads.
template <class Task>
Probe timed(WorkerPool& pool, int64_t num_tasks, double amount, const Task& task) {
    std::vector<Checksum> sums(static_cast<size_t>(pool.num_threads()));
    const auto start = std::chrono::steady_clock::now();
    pool.run(num_tasks,
             [&](int64_t index, int thread) { sums[static_cast<size_t>(thread)].value += task(index); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    double checksum = 0;
    for (const Checksum& sum : sums) checksum += sum.value;
    return {seconds.count(), amount, checksum};
}

int64_t num_pieces(int64_t num_bytes) { return (num_bytes + kPieceBytes - 1) / kPieceBytes; }

// Numbers of -1 to 1, none of them so small that a processor takes longer for it.
void fill_operands(float* operands) {
    uint32_t state = 1;
    for (int64_t i = 0; i < kPeakOperandBytes / 4; ++i) {
        state = state * 1664525u + 1013904223u;
        operands[i] = (static_cast<float>(state >> 8) + 0.5f) / static_cast<float>(1 << 23) - 1.0f;
    }
}

}  // namespace

void touch(WorkerPool& pool, uint8_t* data, int64_t num_bytes) {
    pool.run(num_pieces(num_bytes), [&](int64_t piece, int) {
        const int64_t end = std::min((piece + 1) * kPieceBytes, num_bytes);
        for (int64_t i = piece * kPieceBytes; i < end; i += kPage) data[i] = static_cast<uint8_t>(i / kPage);
    });
}

Probe probe_read(WorkerPool& pool, const uint8_t* data, int64_t num_bytes) {
    const auto read = pool.kernels().read_bytes;
    return timed(pool, num_pieces(num_bytes), static_cast<double>(num_bytes), [&](int64_t piece) {
        const int64_t begin = piece * kPieceBytes;
        return read(data + begin, std::min(kPieceBytes, num_bytes - begin));
    });
}

const PeakLoop* find_peak(const WorkerPool& pool, const std::string& name) {
    for (const PeakLoop& peak : pool.kernels().peaks)
        if (peak.name && name == peak.name) return &peak;
    return nullptr;
}

Probe probe_peak(WorkerPool& pool, const PeakLoop& peak, int64_t num_rounds) {
    alignas(64) float operands[kPeakOperandBytes / 4];
    fill_operands(operands);
    const int64_t num_tasks = kPiecesPerThread * pool.num_threads();
    const int64_t rounds = (num_rounds + num_tasks - 1) / num_tasks;
    const double amount = static_cast<double>(num_tasks * rounds) * static_cast<double>(peak.round_ops);
    return timed(pool, num_tasks, amount,
                 [&](int64_t) { return peak.run(reinterpret_cast<const uint8_t*>(operands), rounds); });
}

}  // namespace ktdesk
