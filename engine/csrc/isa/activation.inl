// Activations (activation.h), in terms of Vec, VecMath and exponential().

// 1 / (1 + exp(-x)), from the exponential of -|x|: nothing overflows.
Vec::Type sigmoid(Vec::Type x) {
    const Vec::Type one = Vec::broadcast(1.0f), zero = Vec::zero();
    const Vec::Type e = exponential(VecMath::subtract(zero, VecMath::magnitude(x)));
    // exp(x) / (1 + exp(x)) below 0, 1 / (1 + exp(-x)) from there on
    const Vec::Type numerator = VecMath::maximum(VecMath::unless_below(x, zero, one), e);
    return VecMath::divide(numerator, VecMath::add(one, e));
}

Vec::Type clamped(Vec::Type x, Vec::Type limit) {
    const Vec::Type bounded = VecMath::minimum(limit, x);
    return VecMath::maximum(VecMath::subtract(Vec::zero(), limit), bounded);
}

template <Activation kKind>
Vec::Type activated(Vec::Type gate, Vec::Type up, Vec::Type limit) {
    if constexpr (kKind == Activation::kSwiGlu)
        return VecMath::multiply(VecMath::multiply(gate, sigmoid(gate)), up);
    if constexpr (kKind == Activation::kSwiGluOai) {
        const Vec::Type seven = Vec::broadcast(7.0f), g = VecMath::minimum(seven, gate);
        const Vec::Type share = sigmoid(VecMath::multiply(Vec::broadcast(1.702f), g));
        const Vec::Type lifted = VecMath::add(clamped(up, seven), Vec::broadcast(1.0f));
        return VecMath::multiply(VecMath::multiply(g, share), lifted);
    }
    if constexpr (kKind == Activation::kClampedGate) {
        const Vec::Type g = VecMath::minimum(limit, gate);
        return VecMath::multiply(VecMath::multiply(g, sigmoid(g)), clamped(up, limit));
    }
    const Vec::Type silu = VecMath::multiply(gate, sigmoid(gate));
    return VecMath::multiply(VecMath::minimum(limit, silu), clamped(up, limit));
}

template <Activation kKind>
void activate_all(float limit, const float* gate, const float* up, float* out, int64_t count) {
    const Vec::Type limits = Vec::broadcast(limit);
    for (int64_t i = 0; i < count; i += Vec::kWidth) {
        if (i + Vec::kWidth <= count) {
            Vec::store(out + i, activated<kKind>(Vec::load(gate + i), Vec::load(up + i), limits));
        } else {
            const int64_t rest = count - i;
            const Vec::Type g = Vec::load_first(gate + i, rest), u = Vec::load_first(up + i, rest);
            Vec::store_first(out + i, activated<kKind>(g, u, limits), rest);
        }
    }
}

void activate(const ActivationRule& rule, const float* gate, const float* up, float* out, int64_t count) {
    switch (rule.kind) {
        case Activation::kSwiGlu:
            return activate_all<Activation::kSwiGlu>(rule.limit, gate, up, out, count);
        case Activation::kSwiGluOai:
            return activate_all<Activation::kSwiGluOai>(rule.limit, gate, up, out, count);
        case Activation::kClampedGate:
            return activate_all<Activation::kClampedGate>(rule.limit, gate, up, out, count);
        case Activation::kClampedSilu:
            return activate_all<Activation::kClampedSilu>(rule.limit, gate, up, out, count);
    }
}
