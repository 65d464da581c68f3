// Waiting without giving up the core, for a bounded time.
#pragma once

#include <chrono>
#include <thread>

namespace ktdesk {

// Longer than the gap between two operations of a decode step, and than the end of an operation that is split
// well; short enough that an idle engine costs nothing, and that a thread which waits for one that lost its
// core gives up its own, for that one to go on there.
constexpr auto kSpinTime = std::chrono::microseconds(50);
constexpr int kPausesPerLook = 32;  // at the clock

inline void spin_pause() {
#ifdef KTDESK_X86
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

// Whether is_met became true in the time of a spin.
template <class Condition>
bool spin_until(const Condition& is_met, std::chrono::nanoseconds time = kSpinTime) {
    const auto end = std::chrono::steady_clock::now() + time;
    do
        for (int i = 0; i < kPausesPerLook; ++i) {
            if (is_met()) return true;
            spin_pause();
        }
    while (std::chrono::steady_clock::now() < end);
    return false;
}

}  // namespace ktdesk
