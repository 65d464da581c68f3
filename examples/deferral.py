"""What deferring experts costs, on a mixture of experts that is trained here: about a minute on two cores.

    python examples/deferral.py [--minutes 1] [--out model.gguf]

Four layers, sixteen experts of which a token uses four, one shared expert; bytes of this repository's own text. The
network is qwen2moe in numpy, with its gradients written out. It is exported to GGUF, read by the engine, and the loss
on text that it was not trained on is printed: as trained, with 1 to 3 experts of smallest weight deferred to the next
layer, and with the same experts skipped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Params = dict[str, Floats]

LAYERS, H, HEADS, D, E, K, I, SHARED, V = 4, 128, 4, 32, 16, 4, 64, 128, 257
CONTEXT, BATCH = 64, 12
EPSILON, ROPE_BASE, BALANCE = 1e-6, 1e4, 0.01
HELD_OUT = 0.05
SUFFIXES = (".py", ".md", ".cpp", ".h", ".inl")


def main() -> None:
    arguments = _arguments()
    train, held_out = repository_text(Path(__file__).resolve().parent.parent)
    print(f"{len(train):,} bytes to train on, {len(held_out):,} held out")
    params = trained(train, arguments.minutes * 60)
    windows = list(windows_of(held_out, arguments.windows))
    base = loss_of(params, windows)
    print(f"\n| experts of {K} | loss deferred | loss skipped |\n|---|---|---|")
    print(f"| as trained | {base:.4f} | {base:.4f} |")
    for count in (1, 2, 3):
        deferred, skipped = (loss_of(params, windows, Cut(count, kept)) for kept in (True, False))
        print(f"| {count} | {deferred:.4f} ({deferred - base:+.4f}) | {skipped:.4f} ({skipped - base:+.4f}) |")
    export(params, arguments.out)
    print(f"\n{arguments.out}, read by the engine (deferral leaves at least two experts immediate):")
    for count in (0, 1, 2):
        print(f"defer {count}: {engine_loss(arguments.out, windows, count):.4f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="of training")
    parser.add_argument("--windows", type=int, default=200, help=f"of {CONTEXT} bytes, for the loss")
    parser.add_argument("--out", type=Path, default=Path("deferral.gguf"))
    return parser.parse_args()


def repository_text(root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Bytes to train on and bytes held out: whole files, in an order drawn once."""
    folders = ("docs", "engine", "examples", "ktdesk", "profiles", "tests", "wizard")
    paths = sorted(p for f in folders for p in (root / f).rglob("*") if p.suffix in SUFFIXES)
    np.random.default_rng(0).shuffle(paths)  # type: ignore[arg-type]
    count = max(1, round(len(paths) * HELD_OUT))
    held_out, train = (b"\n".join(p.read_bytes() for p in part) for part in (paths[:count], paths[count:]))
    return np.frombuffer(train, np.uint8), np.frombuffer(held_out, np.uint8)


def windows_of(text: npt.NDArray[np.uint8], count: int) -> Iterator[npt.NDArray[np.uint8]]:
    starts = np.linspace(0, len(text) - CONTEXT - 1, count).astype(int)
    return (text[start : start + CONTEXT + 1] for start in starts)


# The network. x: (T, H), T = sequences * length.


@dataclass(frozen=True)
class Cut:
    """Experts of smallest weight that are not computed with their layer."""

    count: int
    kept: bool
    """Their output comes with the next layer's; else it is left out."""


def new_params(rng: np.random.Generator) -> Params:
    def matrix(*shape: int) -> Floats:
        return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)

    params = {"token_embd": matrix(V, H), "output": matrix(V, H), "output_norm": np.ones(H, np.float32)}
    for k in range(LAYERS):
        params |= {f"{k}.attn_norm": np.ones(H, np.float32), f"{k}.ffn_norm": np.ones(H, np.float32)}
        params |= {f"{k}.attn_{name}": matrix(H, H) for name in ("q", "k", "v", "output")}
        params |= {f"{k}.ffn_gate_inp": matrix(E, H), f"{k}.ffn_gate_inp_shexp": matrix(1, H)}
        params |= {f"{k}.ffn_{name}_exps": matrix(E, I, H) for name in ("gate", "up")}
        params |= {f"{k}.ffn_{name}_shexp": matrix(SHARED, H) for name in ("gate", "up")}
        params |= {f"{k}.ffn_down_exps": matrix(E, H, I), f"{k}.ffn_down_shexp": matrix(H, SHARED)}
    return params


def rms_norm(x: Floats, weight: Floats) -> tuple[Floats, Callable[[Floats], tuple[Floats, Floats]]]:
    """The norm, and what gives the gradients of x and weight."""
    scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
    unit = x * scale

    def backward(grad: Floats) -> tuple[Floats, Floats]:
        inner = grad * weight
        return scale * (inner - unit * (inner * unit).mean(-1, keepdims=True)), (grad * unit).sum(0)

    return unit * weight, backward


def turned(x: Floats, sign: float) -> Floats:
    """Rotary positions: element i with i + D / 2. x: (sequences, length, heads, D)."""
    angles = np.arange(x.shape[1])[:, None] * ROPE_BASE ** (-np.arange(0, D, 2) / D)
    cos, sin = np.cos(angles)[:, None].astype(np.float32), sign * np.sin(angles)[:, None].astype(np.float32)
    low, high = x[..., : D // 2], x[..., D // 2 :]
    return np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=-1)


def softmax(x: Floats) -> Floats:
    exponents = np.exp(x - x.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def attention(params: Params, k: int, x: Floats, length: int) -> tuple[Floats, Callable[[Floats, Params], Floats]]:
    """Causal, over each sequence by itself; its backward adds to the gradients and returns that of x."""
    shape = (-1, length, HEADS, D)
    q, key, v = ((x @ params[f"{k}.attn_{name}"].T).reshape(shape) for name in ("q", "k", "v"))
    q, key = turned(q, 1), turned(key, 1)
    scores = np.einsum("sqhd,skhd->shqk", q, key, optimize=True) * D**-0.5
    scores = np.where(np.tri(length, dtype=bool), scores, np.float32(-1e9))
    shares = softmax(scores)
    mixed = np.einsum("shqk,skhd->sqhd", shares, v, optimize=True).reshape(-1, H)

    def backward(grad: Floats, grads: Params) -> Floats:
        grads[f"{k}.attn_output"] += grad.T @ mixed
        g = (grad @ params[f"{k}.attn_output"]).reshape(shape)
        g_shares = np.einsum("sqhd,skhd->shqk", g, v, optimize=True)
        g_scores = shares * (g_shares - (g_shares * shares).sum(-1, keepdims=True)) * D**-0.5
        g_q = turned(np.einsum("shqk,skhd->sqhd", g_scores, key, optimize=True), -1)
        g_k = turned(np.einsum("shqk,sqhd->skhd", g_scores, q, optimize=True), -1)
        g_v = np.einsum("shqk,sqhd->skhd", shares, g, optimize=True)
        out = np.zeros_like(x)
        for name, part in (("q", g_q), ("k", g_k), ("v", g_v)):
            grads[f"{k}.attn_{name}"] += part.reshape(-1, H).T @ x
            out += part.reshape(-1, H) @ params[f"{k}.attn_{name}"]
        return out

    return mixed @ params[f"{k}.attn_output"].T, backward


Gradients = tuple[Floats, Floats, Floats, Floats]


def mlp(x: Floats, gate: Floats, up: Floats, down: Floats) -> tuple[Floats, Callable[[Floats], Gradients]]:
    """down(silu(gate x) * up x); the gradients of x, gate, up, down."""
    g, u = x @ gate.T, x @ up.T
    s = sigmoid(g)
    hidden = g * s * u

    def backward(grad: Floats) -> Gradients:
        g_hidden = grad @ down
        g_u, g_g = g_hidden * g * s, g_hidden * u * s * (1 + g * (1 - s))
        return g_g @ gate + g_u @ up, g_g.T @ x, g_u.T @ x, grad.T @ hidden

    return hidden @ down.T, backward


@dataclass(frozen=True)
class Mixture:
    """Of one layer."""

    out: Floats
    """With the shared expert, without what is cut."""
    deferred: Floats
    """What was cut."""
    backward: Callable[[Floats, Params], Floats]


def mixture(params: Params, k: int, x: Floats, cut: Cut | None) -> Mixture:
    p = {name: params[f"{k}.ffn_{name}"] for name in ("gate_inp", "gate_exps", "up_exps", "down_exps")}
    chances = softmax(x @ p["gate_inp"].T)
    ids = np.argsort(-chances, axis=1, kind="stable")[:, :K]
    weights = np.zeros_like(chances)
    np.put_along_axis(weights, ids, np.take_along_axis(chances, ids, 1), 1)
    is_cut = np.zeros(chances.shape, bool)
    if cut is not None:
        np.put_along_axis(is_cut, ids[:, K - cut.count :], True, 1)
    out, deferred = np.zeros_like(x), np.zeros_like(x)
    rows, parts = [], []
    for e in range(E):
        rows.append(np.flatnonzero(weights[:, e]))
        part = mlp(x[rows[e]], p["gate_exps"][e], p["up_exps"][e], p["down_exps"][e])
        weighted, goes = part[0] * weights[rows[e], e, None], is_cut[rows[e], e, None]
        out[rows[e]] += np.where(goes, 0, weighted)
        deferred[rows[e]] += np.where(goes, weighted, 0)
        parts.append(part)
    shared, shared_backward = mlp(x, *(params[f"{k}.ffn_{name}_shexp"] for name in ("gate", "up", "down")))
    share = sigmoid(x @ params[f"{k}.ffn_gate_inp_shexp"].T)

    def backward(grad: Floats, grads: Params) -> Floats:
        g_x, *g_shared = shared_backward(grad * share)
        for name, part in zip(("gate", "up", "down"), g_shared, strict=True):
            grads[f"{k}.ffn_{name}_shexp"] += part
        g_share = (grad * shared).sum(-1, keepdims=True) * share * (1 - share)
        grads[f"{k}.ffn_gate_inp_shexp"] += g_share.T @ x
        g_x = g_x + g_share @ params[f"{k}.ffn_gate_inp_shexp"]
        # Experts that are used more than others are made less likely.
        g_chances = np.tile(BALANCE * E / len(x) * (weights > 0).mean(0), (len(x), 1)).astype(np.float32)
        for e, (found, expert_backward) in enumerate(parts):
            g = grad[rows[e]]
            g_chances[rows[e], e] += (g * found).sum(-1)
            part_x, *parts_w = expert_backward(g * weights[rows[e], e, None])
            for name, part in zip(("gate_exps", "up_exps", "down_exps"), parts_w, strict=True):
                grads[f"{k}.ffn_{name}"][e] += part
            g_x[rows[e]] += part_x
        g_logits = chances * (g_chances - (g_chances * chances).sum(-1, keepdims=True))
        grads[f"{k}.ffn_gate_inp"] += g_logits.T @ x
        return g_x + g_logits @ p["gate_inp"]

    return Mixture(out + share * shared, deferred, backward)


def forward(
    params: Params, ids: npt.NDArray[np.integer[Any]], cut: Cut | None = None
) -> tuple[Floats, Callable[[Floats], Params]]:
    """ids (sequences, length) -> logits (T, V), and what gives the gradients of all parameters."""
    x = params["token_embd"][ids.reshape(-1)]
    steps = []
    pending: Floats | None = None
    for k in range(LAYERS):
        normed, norm_1 = rms_norm(x, params[f"{k}.attn_norm"])
        mixed, attend = attention(params, k, normed, ids.shape[1])
        x = x + mixed
        normed, norm_2 = rms_norm(x, params[f"{k}.ffn_norm"])
        layer = mixture(params, k, normed, None if cut and cut.kept and k == LAYERS - 1 else cut)
        x = x + layer.out + (0 if pending is None else pending)
        pending = layer.deferred if cut and cut.kept else None
        steps.append((norm_1, attend, norm_2, layer.backward))
    normed, last_norm = rms_norm(x, params["output_norm"])

    def backward(grad: Floats) -> Params:
        grads = {name: np.zeros_like(values) for name, values in params.items()}
        grads["output"] += grad.T @ normed
        g, grads["output_norm"] = last_norm(grad @ params["output"])
        for k, (norm_1, attend, norm_2, mix) in reversed(list(enumerate(steps))):
            part, grads[f"{k}.ffn_norm"] = norm_2(mix(g, grads))
            g = g + part
            part, grads[f"{k}.attn_norm"] = norm_1(attend(g, grads))
            g = g + part
        np.add.at(grads["token_embd"], ids.reshape(-1), g)
        return grads

    return normed @ params["output"].T, backward


def loss_and_gradient(logits: Floats, targets: npt.NDArray[np.integer[Any]]) -> tuple[float, Floats]:
    """Nats a byte, and its gradient."""
    shares = softmax(logits)
    rows = np.arange(len(targets))
    loss = -float(np.log(np.maximum(shares[rows, targets], 1e-30)).mean())
    shares[rows, targets] -= 1
    return loss, shares / len(targets)


def trained(text: npt.NDArray[np.uint8], seconds: float) -> Params:
    """Adam, for so long; the rate rises, then falls to nothing with the time that is left."""
    rng = np.random.default_rng(1)
    params = new_params(rng)
    first, second = ({name: np.zeros_like(values) for name, values in params.items()} for _ in range(2))
    started, step, shown = time.monotonic(), 0, 0.0
    while (spent := (time.monotonic() - started) / seconds) < 1:
        step += 1
        starts = rng.integers(0, len(text) - CONTEXT - 1, BATCH)
        windows = np.stack([text[start : start + CONTEXT + 1] for start in starts])
        logits, backward = forward(params, windows[:, :-1])
        loss, grad = loss_and_gradient(logits, windows[:, 1:].reshape(-1))
        rate = 4e-3 * min(1.0, step / 20) * (1 - spent)
        for name, g in backward(grad).items():
            first[name] += 0.1 * (g - first[name])
            second[name] += 0.02 * (g * g - second[name])
            mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.98**step)
            params[name] -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
        if spent >= shown:
            print(f"{spent:4.0%} step {step}: {loss:.3f} nats a byte")
            shown += 0.1
    return params


def loss_of(params: Params, windows: list[npt.NDArray[np.uint8]], cut: Cut | None = None) -> float:
    """Nats a byte."""
    logits, _ = forward(params, np.stack(windows)[:, :-1], cut)
    return loss_and_gradient(logits, np.stack(windows)[:, 1:].reshape(-1))[0]


# The same network as a file, and what the engine says of it.


def export(params: Params, path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "qwen2moe")
    writer.add_name("deferral study")
    for add, value in (
        (writer.add_context_length, CONTEXT),
        (writer.add_embedding_length, H),
        (writer.add_block_count, LAYERS),
        (writer.add_feed_forward_length, SHARED),
        (writer.add_head_count, HEADS),
        (writer.add_head_count_kv, HEADS),
        (writer.add_expert_count, E),
        (writer.add_expert_used_count, K),
        (writer.add_expert_feed_forward_length, I),
        (writer.add_expert_shared_feed_forward_length, SHARED),
    ):
        add(value)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(ROPE_BASE)
    _add_bytes_as_tokens(writer)
    for name, values in params.items():
        block = f"blk.{name}" if name[0].isdigit() else name
        writer.add_tensor(f"{block}.weight", values[0] if name.endswith("gate_inp_shexp") else values)
    for k in range(LAYERS):
        for name in ("q", "k", "v"):
            writer.add_tensor(f"blk.{k}.attn_{name}.bias", np.zeros(H, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_bytes_as_tokens(writer: Any) -> None:
    """The alphabet of byte-level BPE: printable bytes are themselves, the others follow from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = [chr(byte if byte in printable else next(spare)) for byte in range(256)]
    never = tokens[255]  # a vocabulary needs a merge: of bytes that no UTF-8 has
    writer.add_token_list([*tokens, never + never])
    writer.add_token_types([1] * V)
    writer.add_token_merges([f"{never} {never}"])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def engine_loss(path: Path, windows: list[npt.NDArray[np.uint8]], num_deferred: int) -> float:
    """Nats a byte, by the engine's exact path."""
    from ktdesk_engine.config import EngineConfig
    from ktdesk_engine.engine import Engine

    with Engine.load(path, EngineConfig(compute="float32", context=CONTEXT, defer=num_deferred)) as engine:
        losses = [-engine.score(w[:-1])[np.arange(CONTEXT), w[1:].astype(int)].mean() for w in windows]
    return float(np.mean(losses))


if __name__ == "__main__":
    main()
