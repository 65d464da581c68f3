// A list of operations over fixed memory, recorded once and replayed as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker_pool.h"

namespace ktdesk {

// Blocks of memory that operations take and give back. A block may be given back by any thread.
class Arena {
  public:
    // At least `bytes`, aligned to a cache line.
    uint8_t* take(size_t bytes);
    void give_back(const uint8_t* data);

    // Whether data lies in one of its blocks.
    bool owns(const void* data) const;
    size_t num_bytes() const;
    // What it would be once so many more are taken.
    size_t num_bytes_with(size_t bytes) const;

  private:
    using Free = std::multimap<size_t, const uint8_t*>;
    // A free block of about this size.
    Free::const_iterator find_free(size_t bytes) const;

    struct Block {
        Buffer buffer;
        size_t bytes;
    };

    mutable std::mutex mutex_;
    std::map<const uint8_t*, Block> blocks_;  // by their first byte
    Free free_;                               // by size
    size_t num_bytes_ = 0;
};

// In this order: memory is taken for what changes from step to step; the program records while a step runs
// for the first time; it is replayed as often as wanted. Memory that the step gives back while it is recorded
// is taken again by later operations, in each replay as in the recording.
class Program {
  public:
    explicit Program(WorkerPool& pool) : pool_(pool), arena_(std::make_shared<Arena>()) {}
    ~Program() { end(); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // From here on the operations of this thread on the pool are taken up. Throws std::logic_error where this
    // program has recorded already, or another records.
    void begin();
    void end();

    // Whether operations of the calling thread are taken up.
    bool records() const { return pool_.recording == this && recorder_ == std::this_thread::get_id(); }

    // touched: the arrays that change from step to step. Throws std::logic_error where one does not lie in
    // the arena: then it was made by what a replay would leave out.
    void add(std::initializer_list<const void*> touched, std::function<void()> step);

    // The caller holds the pool's lock. What a step throws ends the replay.
    void replay();

    size_t num_steps() const { return steps_.size(); }
    WorkerPool& pool() const { return pool_; }
    const std::shared_ptr<Arena>& arena() const { return arena_; }

  private:
    WorkerPool& pool_;
    const std::shared_ptr<Arena> arena_;
    std::vector<std::function<void()>> steps_;
    std::thread::id recorder_;
};

}  // namespace ktdesk
