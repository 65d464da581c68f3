// How an accelerator hands a layer's input to the CPU, and takes the result of its experts back: memory at
// fixed addresses and flags in it, so that a recorded step of the accelerator can have them as constants.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

namespace ktdesk {

// Raised on both sides where the other failed, or did not come.
struct HandOffError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The bytes, from an address that is a multiple of a page. A line is 64 bytes; areas are padded to lines.
//
//   line 2k      ready[k]: 1 where the input of layer k lies in its area    written by the accelerator
//   line 2k + 1  done[k]:  1 where the output of layer k lies in its area   written by the CPU
//   line 2L      area 0, of the layers 0, 2, 4, ...
//   behind it    area 1, of the layers 1, 3, 5, ...
//
//   an area      x        (max_tokens, H) float32   the layer's input         accelerator -> CPU
//                ids      (max_tokens, K) int32     of the routed experts     accelerator -> CPU
//                weights  (max_tokens, K) float32   of these                  accelerator -> CPU
//                out      (max_tokens, H) float32   what the CPU's experts give   CPU -> accelerator
//
// Layers are counted over those that have experts. A flag is a 32-bit word alone in its line, so that who
// polls it moves no other's line, and 0 or 1, so that a graph which was captured once can write and await the
// same values in every step. Who waits for a flag sets it back.
//
// Order, for layer k:
//   accelerator  A1 write x, ids, weights   A2 ready[k] = 1 (release)     ... A3 wait for done[k] (acquire)
//                A4 done[k] = 0             A5 read out
//   CPU          C1 wait for ready[k] (acquire)   C2 ready[k] = 0         C3 read x, ids, weights
//                C4 write out               C5 done[k] = 1 (release)      C6 what was deferred: reads x again
//
// - C3 sees A1: C1 acquires what A2 released. A5 sees C4: A3 acquires what C5 released. A device's write of
//   a flag comes behind its copies in the same stream, and a stream's memory operation orders them.
// - ready[k] is never lost: the accelerator writes it again in the next step only, behind A3 of this step,
//   which waits for C5, which follows C2. done[k] alike: the CPU writes it again behind C1 of the next step,
//   which waits for A2 of it, which follows A4 of this one.
// - One writer of each area at a time. x of layer k is read until C6 ends; the next to write it is A1 of
// layer
//   k + 2, behind A3 of layer k + 1, which waits for C5 of layer k + 1, which the CPU does after C6 of layer
//   k. out of layer k is read in A5; the next to write it is C4 of layer k + 2, behind A2 of layer k + 2,
//   which follows A5. With one area, A1 of layer k + 1 could overwrite what C6 of layer k reads: so two.
class HandOff {
  public:
    HandOff(uint8_t* memory, int64_t num_layers, int64_t max_tokens, int64_t hidden, int64_t num_used);

    static int64_t num_bytes(int64_t num_layers, int64_t max_tokens, int64_t hidden, int64_t num_used);

    struct Area {
        float* x;
        int32_t* ids;
        float* weights;
        float* out;
    };
    Area area(int64_t layer) const;

    std::atomic<uint32_t>& ready(int64_t layer) const { return flag(2 * layer); }
    std::atomic<uint32_t>& done(int64_t layer) const { return flag(2 * layer + 1); }

    // Until the flag is 1, which becomes 0. Spins for a bounded time, then gives its core up between looks.
    // HandOffError where the other side failed, or timeout_ns passed.
    void take(std::atomic<uint32_t>& flag, const char* what) const;
    static void give(std::atomic<uint32_t>& flag) { flag.store(1, std::memory_order_release); }

    // Lets both sides go: whoever waits raises, and a device that polls by itself sees every flag.
    void fail();
    bool has_failed() const { return has_failed_; }
    // Flags down, for the next step. Nobody may be waiting.
    void reset();

    const int64_t num_layers, max_tokens, hidden, num_used;
    std::atomic<int64_t> timeout_ns{30'000'000'000};

  private:
    std::atomic<uint32_t>& flag(int64_t line) const;
    uint8_t* const memory_;
    std::atomic<bool> has_failed_{false};
};

// For a device whose streams cannot write and await words themselves, but call functions of the host: `flag`
// is set to 1; or waited for, and set back. Who fails lets a waiting one go by `HandOff::fail`.
void give_flag(void* flag);
void take_flag(void* flag);

}  // namespace ktdesk
