// Runs of neighbouring panels, which threads take one by one.
//
// A thread reads its run as one stream, so runs are long; but the last ones are short, so that threads end
// together although one was slow or lost its core. With several groups (experts), a run is of one of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace ktdesk {

struct Chunk {
    int64_t group;
    int64_t first, count;  // panels
};

// Chunks in order. Each is at most a third of a thread's share of the work that is left.
class ChunkPlan {
  public:
    // total_work: of all groups together, a group's panels times what one costs.
    ChunkPlan(int num_threads, int64_t total_work) : num_shares_(3 * num_threads), work_left_(total_work) {}

    // Splits the panels of a group into chunks of at most `most`, multiples of `step` but for the last.
    void add(int64_t group, int64_t num_panels, int64_t panel_work, int64_t step, int64_t most) {
        for (int64_t first = 0; first < num_panels;) {
            const int64_t wanted = std::min(work_left_ / num_shares_ / panel_work, most) / step * step;
            const int64_t count = std::min(std::max(wanted, step), num_panels - first);
            chunks_.push_back({group, first, count});
            work_left_ -= count * panel_work;
            first += count;
        }
    }

    const std::vector<Chunk>& chunks() const { return chunks_; }

  private:
    int64_t num_shares_, work_left_;
    std::vector<Chunk> chunks_;
};

// Hands out the numbers begin..end-1 in order, each once; then larger ones.
class Counter {
  public:
    Counter(int64_t begin, int64_t end) : end_(end), next_(begin) {}
    int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }
    // What is most likely taken next.
    int64_t peek() const { return next_.load(std::memory_order_relaxed); }
    int64_t end() const { return end_; }

  private:
    const int64_t end_;
    alignas(64) std::atomic<int64_t> next_;
};

}  // namespace ktdesk
