#include "handoff.h"

#include <chrono>
#include <string>
#include <thread>

#include "spinning.h"

namespace ktdesk {

namespace {

constexpr int64_t kLine = 64;
// Longer than an accelerator needs for its part of a layer, so that a step never sleeps in between.
constexpr auto kHandOffSpin = std::chrono::milliseconds(2);
constexpr auto kNap = std::chrono::microseconds(20);

int64_t padded(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

int64_t area_bytes(int64_t max_tokens, int64_t hidden, int64_t num_used) {
    return 2 * padded(max_tokens * hidden * 4) + 2 * padded(max_tokens * num_used * 4);
}

}  // namespace

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free,
              "a flag is a plain word that a device can write");

HandOff::HandOff(uint8_t* memory, int64_t num_layers, int64_t max_tokens, int64_t hidden, int64_t num_used)
    : num_layers(num_layers), max_tokens(max_tokens), hidden(hidden), num_used(num_used), memory_(memory) {
    reset();
}

int64_t HandOff::num_bytes(int64_t num_layers, int64_t max_tokens, int64_t hidden, int64_t num_used) {
    return 2 * num_layers * kLine + 2 * area_bytes(max_tokens, hidden, num_used);
}

std::atomic<uint32_t>& HandOff::flag(int64_t line) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(memory_ + line * kLine);
}

HandOff::Area HandOff::area(int64_t layer) const {
    uint8_t* x = memory_ + 2 * num_layers * kLine + layer % 2 * area_bytes(max_tokens, hidden, num_used);
    uint8_t* ids = x + padded(max_tokens * hidden * 4);
    uint8_t* weights = ids + padded(max_tokens * num_used * 4);
    uint8_t* out = weights + padded(max_tokens * num_used * 4);
    return {reinterpret_cast<float*>(x), reinterpret_cast<int32_t*>(ids), reinterpret_cast<float*>(weights),
            reinterpret_cast<float*>(out)};
}

void HandOff::take(std::atomic<uint32_t>& flag, const char* what) const {
    const auto is_over = [&] { return flag.load(std::memory_order_acquire) || has_failed_.load(); };
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns.load());
    if (!spin_until(is_over, kHandOffSpin))
        while (!is_over()) {
            std::this_thread::sleep_for(kNap);
            if (std::chrono::steady_clock::now() > end)
                throw HandOffError(std::string(what) + " did not answer in time");
        }
    if (has_failed_) throw HandOffError("the other side of the hand-off failed");
    flag.store(0, std::memory_order_relaxed);
}

void HandOff::fail() {
    has_failed_ = true;
    for (int64_t line = 0; line < 2 * num_layers; ++line) give(flag(line));
}

void HandOff::reset() {
    for (int64_t line = 0; line < 2 * num_layers; ++line) flag(line).store(0);
    has_failed_ = false;
}

void give_flag(void* flag) { static_cast<std::atomic<uint32_t>*>(flag)->store(1, std::memory_order_release); }

void take_flag(void* flag) {
    auto& word = *static_cast<std::atomic<uint32_t>*>(flag);
    const auto is_set = [&] { return word.load(std::memory_order_acquire) != 0; };
    if (!spin_until(is_set, kHandOffSpin))
        while (!is_set()) std::this_thread::sleep_for(kNap);
    word.store(0, std::memory_order_relaxed);
}

}  // namespace ktdesk
