#include "program.h"

#include <iterator>
#include <stdexcept>
#include <utility>

#include "stream.h"

namespace ktdesk {

Arena::Free::const_iterator Arena::find_free(size_t bytes) const {
    const auto found = free_.lower_bound(bytes);
    return found != free_.end() && found->first <= 2 * bytes ? found : free_.end();
}

uint8_t* Arena::take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = find_free(bytes);
    if (found != free_.end()) {
        const uint8_t* data = found->second;
        free_.erase(found);
        return blocks_.at(data).buffer.array<uint8_t>();
    }
    Buffer buffer;
    auto* data = static_cast<uint8_t*>(buffer.reserve(bytes));
    blocks_.emplace(data, Block{std::move(buffer), bytes});
    num_bytes_ += bytes;
    return data;
}

void Arena::give_back(const uint8_t* data) {
    const std::lock_guard lock(mutex_);
    free_.emplace(blocks_.at(data).bytes, data);
}

bool Arena::owns(const void* data) const {
    const std::lock_guard lock(mutex_);
    const auto* byte = static_cast<const uint8_t*>(data);
    const auto next = blocks_.upper_bound(byte);
    if (next == blocks_.begin()) return false;
    const auto& [begin, block] = *std::prev(next);
    return byte < begin + block.bytes;
}

size_t Arena::num_bytes() const {
    const std::lock_guard lock(mutex_);
    return num_bytes_;
}

size_t Arena::num_bytes_with(size_t bytes) const {
    const std::lock_guard lock(mutex_);
    return num_bytes_ + (find_free(bytes) == free_.end() ? bytes : 0);
}

void Program::begin() {
    if (pool_.recording) throw std::logic_error("a program is being recorded on this pool");
    if (!steps_.empty()) throw std::logic_error("a program is recorded once");
    recorder_ = std::this_thread::get_id();
    pool_.recording = this;
}

void Program::end() {
    if (pool_.recording == this) pool_.recording = nullptr;
}

void Program::add(std::initializer_list<const void*> touched, std::function<void()> step) {
    for (const void* data : touched)
        if (!arena_->owns(data))
            throw std::logic_error(
                "an operation that is being recorded has an array from outside the program: what made it "
                "would "
                "not be replayed");
    steps_.push_back(std::move(step));
}

void Program::replay() {
    for (const auto& step : steps_) {
        if (pool_.stream) pool_.stream->pause_between();
        step();
    }
}

}  // namespace ktdesk
