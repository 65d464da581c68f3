#include "worker_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <new>

#include "spinning.h"

namespace ktdesk {

namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{1} << 21;

// std::atomic's own wait keeps its sleepers in a table of the process, which pools would share.
void futex(std::atomic<int32_t>& word, int operation, int32_t value) {
    static_assert(sizeof(word) == sizeof(int32_t));
    syscall(SYS_futex, reinterpret_cast<int32_t*>(&word), operation, value, nullptr, nullptr, 0);
}

void sleep_while_equal(std::atomic<int32_t>& word, int32_t value) { futex(word, FUTEX_WAIT_PRIVATE, value); }

void wake_all(std::atomic<int32_t>& word) { futex(word, FUTEX_WAKE_PRIVATE, INT_MAX); }

// How often this process is a child's child since the library was loaded. getpid would ask the system.
std::atomic<int> num_forks{0};

int watch_forks() {
    static const int is_watching = pthread_atfork(nullptr, nullptr, [] { num_forks.fetch_add(1); });
    static_cast<void>(is_watching);
    return num_forks.load();
}

int num_allowed_cpus() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return INT_MAX;  // more than the set can hold
    return CPU_COUNT(&allowed);
}

// A place is a wish: where the system refuses, as for a core that went offline, the thread runs where it may.
void pin_this_thread(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu : cpus)
        if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

std::vector<int> groups_by_cpu(const std::vector<ThreadPlace>& places) {
    std::vector<int> groups;
    for (const ThreadPlace& place : places)
        for (int cpu : place.cpus) {
            if (static_cast<size_t>(cpu) >= groups.size()) groups.resize(static_cast<size_t>(cpu) + 1, -1);
            groups[static_cast<size_t>(cpu)] = place.group;
        }
    return groups;
}

}  // namespace

void Buffer::Free::operator()(void* block) const { std::free(block); }

void* Buffer::reserve(size_t bytes) {
    if (bytes > bytes_ || !block_) {
        const size_t alignment = bytes < kHugePage ? kCacheLine : kHugePage;
        const size_t rounded = (bytes / alignment + 1) * alignment;
        block_.reset();
        bytes_ = 0;
        block_.reset(std::aligned_alloc(alignment, rounded));
        if (!block_) throw std::bad_alloc();
        // Advice: rows of a batch lie pages apart, and a tile of results goes to 16 of them.
        if (alignment == kHugePage) madvise(block_.get(), rounded, MADV_HUGEPAGE);
        bytes_ = rounded;
    }
    return block_.get();
}

std::vector<ThreadPlace> unpinned_places(int num_threads) {
    return std::vector<ThreadPlace>(static_cast<size_t>(num_threads), ThreadPlace{0, {}});
}

WorkerPool::WorkerPool(const RowKernels& kernels, const std::vector<ThreadPlace>& places)
    : kernels_(kernels),
      scratches_(places.size()),
      num_groups_(places.back().group + 1),
      may_spin_(static_cast<int>(places.size()) <= num_allowed_cpus()),
      groups_(new Group[static_cast<size_t>(num_groups_)]),
      num_forks_(watch_forks()) {
    first_thread_of_group_.assign(static_cast<size_t>(num_groups_) + 1, static_cast<int>(places.size()));
    for (int thread = static_cast<int>(places.size()) - 1; thread >= 0; --thread) {
        const int group = places[static_cast<size_t>(thread)].group;
        first_thread_of_group_[static_cast<size_t>(group)] = thread;
        if (thread > 0) ++groups_[static_cast<size_t>(group)].num_workers;
    }
    for (const ThreadPlace& place : places) group_of_thread_.push_back(place.group);
    if (num_groups_ > 1) group_of_cpu_ = groups_by_cpu(places);
    try {
        for (int thread = 1; thread < num_threads(); ++thread)
            workers_.emplace_back(
                [this, thread, cpus = places[static_cast<size_t>(thread)].cpus] { work(thread, cpus); });
    } catch (...) {  // the system gives no more threads
        stop_workers();
        throw;
    }
}

// A forked child has the pool but not its threads: there is nothing to join, and no thread object may be
// destroyed as if there were.
WorkerPool::~WorkerPool() {
    if (num_forks.load() == num_forks_)
        stop_workers();
    else
        new std::vector<std::thread>(std::move(workers_));
}

void WorkerPool::stop_workers() {
    stop_ = true;
    wake_workers();
    for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::reserve_scratch(int64_t num_floats) {
    for (Buffer& scratch : scratches_) scratch.reserve_array<float>(num_floats);
}

Share WorkerPool::share_of_group(int group, int64_t count) const {
    const int64_t first = first_thread_of_group_[static_cast<size_t>(group)];
    const int64_t behind = first_thread_of_group_[static_cast<size_t>(group) + 1];
    return {count * first / num_threads(), count * behind / num_threads()};
}

int WorkerPool::find_group_of_caller() const {
    const int cpu = group_of_cpu_.empty() ? -1 : sched_getcpu();
    const bool is_known = cpu >= 0 && static_cast<size_t>(cpu) < group_of_cpu_.size();
    const int group = is_known ? group_of_cpu_[static_cast<size_t>(cpu)] : -1;
    return group >= 0 ? group : group_of_thread_[0];
}

void WorkerPool::run_job(const Job& job) {
    const int64_t num_tasks = job.num_blocks * job.num_slices;
    if (num_tasks <= 1 || workers_.empty() || num_forks.load(std::memory_order_relaxed) != num_forks_)
        return run_alone(job);
    group_of_caller_ = find_group_of_caller();
    publish(job);
    num_expected_ += num_tasks - take_tasks(group_of_caller_, 0);
    wait_for_workers();
}

void WorkerPool::run_alone(const Job& job) const {
    for (int64_t block = 0; block < job.num_blocks; ++block)
        for (int64_t slice = 0; slice < job.num_slices; ++slice) job.call(job.task, block, slice, 0);
}

// A thread may still be on its way out of the job before. It can take a task of this one, but only after the
// store to num_left, which it then sees whole.
void WorkerPool::publish(const Job& job) {
    job_ = job;
    for (int g = 0; g < num_groups_; ++g) {
        Group& group = groups_[static_cast<size_t>(g)];
        group.slices = share_of_group(g, job.num_slices);
        group.num_tasks = job.num_blocks * group.slices.size();
        (job.may_help ? group.num_left : group.num_left_at_home)
            .store(group.num_tasks, std::memory_order_release);
    }
    wake_workers();
}

// A worker counts itself as parked and then looks at the generation; here it is the other way round. Both are
// sequentially consistent, so a worker that saw the old generation is seen to be parked.
void WorkerPool::wake_workers() {
    generation_.fetch_add(1);
    if (num_parked_.load() > 0) wake_all(generation_);
}

// Takes tasks of its own group first, then of the others; returns how many. The groups of nobody but the
// caller have no home to keep.
int64_t WorkerPool::take_tasks(int own, int thread) {
    int64_t num_taken = 0;
    for (int i = 0; i < num_groups_; ++i) {
        Group& group = groups_[static_cast<size_t>((own + i) % num_groups_)];
        if (i == 0 || (thread == 0 && group.num_workers == 0))
            num_taken += take_from(group.num_left_at_home, group, thread);
        num_taken += take_from(group.num_left, group, thread);
    }
    return num_taken;
}

// Who takes the number n > 0 has task num_tasks - n, and until it is counted as done the job cannot end: what
// the job says is read only then.
int64_t WorkerPool::take_from(std::atomic<int64_t>& num_left, const Group& group, int thread) {
    if (num_left.load(std::memory_order_relaxed) <= 0) return 0;
    int64_t num_taken = 0, number = 0;
    do {
        number = num_left.fetch_sub(1, std::memory_order_acq_rel);
        if (number <= 0) break;
        const int64_t index = group.num_tasks - number, num_slices = group.slices.size();
        if (index < num_slices)
            job_.call(job_.task, 0, group.slices.begin + index, thread);
        else
            job_.call(job_.task, index / num_slices, group.slices.begin + index % num_slices, thread);
        ++num_taken;
    } while (number > 1);
    return num_taken;
}

void WorkerPool::wait_for_workers() {
    const auto are_done = [&] { return num_done_.load() == num_expected_; };
    if (are_done() || (may_spin_ && spin_until(are_done))) return;
    while (!are_done()) {
        is_caller_parked_.store(1);
        if (!are_done()) sleep_while_equal(is_caller_parked_, 1);
    }
    is_caller_parked_.store(0);
}

void WorkerPool::work(int thread, const std::vector<int>& cpus) {
    pin_this_thread(cpus);
    const int group = group_of_thread_[static_cast<size_t>(thread)];
    for (int32_t seen = 0;;) {
        wait_for_job(seen);
        seen = generation_.load();
        if (stop_) return;
        const int64_t num_taken = take_tasks(group, thread);
        if (num_taken == 0) continue;
        num_done_.fetch_add(num_taken);
        if (is_caller_parked_.load() && is_caller_parked_.exchange(0)) wake_all(is_caller_parked_);
    }
}

void WorkerPool::wait_for_job(int32_t seen) {
    const auto has_job = [&] { return generation_.load() != seen; };
    if (has_job() || (may_spin_ && spin_until(has_job))) return;
    num_parked_.fetch_add(1);
    while (!has_job()) sleep_while_equal(generation_, seen);
    num_parked_.fetch_sub(1);
}

}  // namespace ktdesk
