// What stands between gate and up and down.
#pragma once

namespace ktdesk {

enum class Activation : int {
    kSwiGlu = 0,       // silu(gate) * up
    kSwiGluOai = 1,    // g = min(gate, 7), u = clamp(up, -7, 7): g * sigmoid(1.702 g) * (u + 1)
    kClampedGate = 2,  // g = min(gate, limit), u = clamp(up, -limit, limit): silu(g) * u
    kClampedSilu = 3,  // min(silu(gate), limit) * clamp(up, -limit, limit)
};

constexpr int kNumActivations = 4;

struct ActivationRule {
    Activation kind;
    float limit;  // of the clamped ones
};

}  // namespace ktdesk
