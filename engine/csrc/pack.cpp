#include "pack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "finite.h"

namespace ktdesk {

namespace {

// What is asked for and read at a time: enough that asking pays, and little enough to stay in the caches.
constexpr int64_t kRunBytes = 256 * 1024;

// A task writes far more than a huge page, so that seldom two threads come upon the same new one: each would
// clear one, and one of them in vain. With many threads it is less, so that all have work.
constexpr int64_t kTaskBytes = 8 * 1024 * 1024;

// Asks for all pages of the rows at once, which is much cheaper than a fault for every few of them. Where the
// system does not know how, the pages come by faults.
void populate(const uint8_t* rows, int64_t num_bytes) {
#ifdef MADV_POPULATE_READ
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(rows) / page * page;
    const uintptr_t end = reinterpret_cast<uintptr_t>(rows) + static_cast<uintptr_t>(num_bytes);
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#endif
}

// The smallest place that any thread has seen.
class FirstBad {
  public:
    void note(int64_t place) {
        int64_t seen = place_.load(std::memory_order_relaxed);
        while ((seen < 0 || place < seen) && !place_.compare_exchange_weak(seen, place)) {
        }
    }
    int64_t place() const { return place_; }

  private:
    std::atomic<int64_t> place_{-1};
};

// Calls visit(panel, rows, count) for the rows of each panel of the stack, having looked for bad blocks.
template <class Visit>
class RowReader {
  public:
    RowReader(const MatrixStack& stack, const Visit& visit)
        : stack_(stack), visit_(visit), panels_each_(num_panels(stack.first.num_rows)) {}

    int64_t read(WorkerPool& pool) {
        if (pool.num_groups() > 1) return read_at_home(pool);
        const int64_t panels = stack_.num_matrices * panels_each_, panel_bytes = kPanelRows * row_bytes();
        const int64_t share = panels / (2 * pool.num_threads()), most = kTaskBytes / panel_bytes;
        const int64_t panels_per_task = std::max<int64_t>(1, std::min(share, most));
        const int64_t tasks = (panels + panels_per_task - 1) / panels_per_task;
        pool.run(tasks, [&](int64_t task, int) {
            const int64_t end = std::min((task + 1) * panels_per_task, panels);
            for (int64_t panel = task * panels_per_task; panel < end;) panel = read_run(panel, end);
        });
        return bad_.place();
    }

  private:
    // The threads that will multiply a panel touch it first. The stack is of whole matrices.
    int64_t read_at_home(WorkerPool& pool) {
        pool.run_sliced_at_home(stack_.num_matrices, panels_each_, [&](int64_t matrix, int64_t slice, int) {
            const int64_t panel = matrix * panels_each_ + slice;
            read_run(panel, panel + 1);
        });
        return bad_.place();
    }

    int64_t row_bytes() const { return stack_.first.row_bytes; }

    // Some panels of one matrix; returns the first that follows.
    int64_t read_run(int64_t panel, int64_t end) {
        const int64_t matrix = panel / panels_each_, first = panel % panels_each_ * kPanelRows;
        const int64_t panels = std::min({end - panel, panels_each_ - panel % panels_each_,
                                         std::max<int64_t>(1, kRunBytes / (kPanelRows * row_bytes()))});
        const int64_t count = std::min(panels * kPanelRows, stack_.first.num_rows - first);
        const uint8_t* rows = stack_.first.rows + matrix * stack_.stride + first * row_bytes();
        populate(rows, count * row_bytes());
        for (int64_t r = 0; r < count; r += kPanelRows, ++panel)
            read_panel(panel, rows + r * row_bytes(), std::min(kPanelRows, count - r));
        return panel;
    }

    void read_panel(int64_t panel, const uint8_t* rows, int64_t count) {
        const int64_t place = first_bad_block(stack_.first.type, rows, count * row_bytes());
        if (place >= 0) bad_.note(rows - stack_.first.rows + place);
        visit_(panel, rows, count);
    }

    const MatrixStack& stack_;
    const Visit& visit_;
    const int64_t panels_each_;
    FirstBad bad_;
};

}  // namespace

int64_t pack(WorkerPool& pool, const MatrixStack& stack, uint8_t* panels) {
    const Matrix& shape = stack.first;
    const PackPanel pack_panel = pool.kernels().pack_panel[shape.type];
    const int64_t bytes = panel_bytes(shape.type, shape.length);
    const auto visit = [&](int64_t panel, const uint8_t* rows, int64_t count) {
        pack_panel(rows, shape.row_bytes, count, shape.length, panels + panel * bytes);
    };
    return RowReader(stack, visit).read(pool);
}

int64_t check(WorkerPool& pool, const MatrixStack& stack) {
    const auto visit = [](int64_t, const uint8_t*, int64_t) {};
    return RowReader(stack, visit).read(pool);
}

}  // namespace ktdesk
