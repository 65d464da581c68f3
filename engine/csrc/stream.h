// Operations of one pool that another thread runs, in the order in which they were submitted: what a device's
// stream is, on a thread of the host.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "program.h"

namespace ktdesk {

// While it lives, operations on its pool are submitted to it instead of being run by who calls them, and the
// arrays that they make lie in its arena. A block that is given back may be taken again at once: what is then
// written to it is submitted later than what still reads it.
//
// What an operation throws skips all that follow, until synchronize() throws it.
class Stream {
  public:
    explicit Stream(WorkerPool& pool);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void submit(std::function<void()> operation);

    // Waits until all that was submitted is done.
    void synchronize();

    // Does what was submitted, and ends the thread: from now on operations are run by who calls them. May be
    // called again.
    void stop();

    // Memory for an operation's result: of the arena, or std::bad_alloc beyond the limit.
    uint8_t* take(size_t bytes);

    // Called by the thread before each operation, also of a program that is replayed on it.
    void pause_between() const;
    // Computes nothing for so long.
    static void pause(int64_t nanoseconds);

    const std::shared_ptr<Arena>& arena() const { return arena_; }
    WorkerPool& pool() const { return pool_; }

    // Called by the thread when an operation throws, so that nobody waits for those behind it.
    void on_error(std::function<void()> callback);

    std::atomic<int64_t> delay_ns{0};             // before each operation
    std::atomic<int64_t> limit_bytes{INT64_MAX};  // of the arena

  private:
    void work();
    void run(const std::function<void()>& operation);
    bool has_work() const { return num_submitted_.load() != num_done_.load() || stop_.load(); }

    WorkerPool& pool_;
    const std::shared_ptr<Arena> arena_;

    std::mutex mutex_;
    std::condition_variable submitted_, done_;
    std::deque<std::function<void()>> queue_;
    // They may hold Python's arrays, so they are let go of by the thread that submits, not by ours.
    std::vector<std::function<void()>> finished_;
    std::exception_ptr error_;
    std::function<void()> on_error_;
    std::atomic<int64_t> num_submitted_{0}, num_done_{0};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace ktdesk
