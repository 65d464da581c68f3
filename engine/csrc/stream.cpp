#include "stream.h"

#include <chrono>
#include <new>
#include <utility>

#include "spinning.h"

namespace ktdesk {

Stream::Stream(WorkerPool& pool) : pool_(pool), arena_(std::make_shared<Arena>()) {
    thread_ = std::thread([this] { work(); });
    pool_.stream = this;
}

Stream::~Stream() { stop(); }

void Stream::stop() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    submitted_.notify_all();
    thread_.join();
    pool_.stream = nullptr;  // not before: what is still in the queue asks it for its delay
}

void Stream::submit(std::function<void()> operation) {
    std::vector<std::function<void()>> finished;
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(operation));
        num_submitted_.fetch_add(1);
        finished.swap(finished_);
    }
    submitted_.notify_one();
}

void Stream::synchronize() {
    const auto is_idle = [this] { return num_done_.load() == num_submitted_.load(); };
    spin_until(is_idle);
    std::vector<std::function<void()>> finished;
    std::exception_ptr error;
    {
        std::unique_lock lock(mutex_);
        done_.wait(lock, is_idle);
        finished.swap(finished_);
        error = std::exchange(error_, nullptr);
    }
    if (error) std::rethrow_exception(error);
}

uint8_t* Stream::take(size_t bytes) {
    if (arena_->num_bytes_with(bytes) > static_cast<size_t>(limit_bytes.load())) throw std::bad_alloc();
    return arena_->take(bytes);
}

void Stream::on_error(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    on_error_ = std::move(callback);
}

void Stream::pause(int64_t nanoseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
    while (std::chrono::steady_clock::now() < end) spin_pause();
}

void Stream::pause_between() const {
    if (const int64_t nanoseconds = delay_ns.load(std::memory_order_relaxed)) pause(nanoseconds);
}

void Stream::run(const std::function<void()>& operation) {
    if (error_) return;  // written by this thread, or while it has nothing to do
    try {
        const auto lock = pool_.lock();
        operation();
    } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
        if (on_error_) on_error_();
    }
}

void Stream::work() {
    for (;;) {
        spin_until([this] { return has_work(); });
        std::function<void()> operation;
        {
            std::unique_lock lock(mutex_);
            submitted_.wait(lock, [this] { return !queue_.empty() || stop_.load(); });
            if (queue_.empty()) return;
            operation = std::move(queue_.front());
            queue_.pop_front();
        }
        run(operation);
        {
            const std::lock_guard lock(mutex_);
            finished_.push_back(std::move(operation));
            num_done_.fetch_add(1);
        }
        done_.notify_all();
    }
}

}  // namespace ktdesk
