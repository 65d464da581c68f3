"""What a GPU's failure is called: lost, out of memory, or failed; and what the engine does of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_models import write_tiny

torch = pytest.importorskip("torch", reason="the extra gpu is not installed")

from ktdesk_engine.backends.cuda.accelerator import CudaAccelerator  # noqa: E402
from ktdesk_engine.backends.cuda.failures import engine_errors  # noqa: E402
from ktdesk_engine.config import EngineConfig  # noqa: E402
from ktdesk_engine.engine import Engine  # noqa: E402
from ktdesk_engine.errors import AcceleratorError, AcceleratorLostError, AcceleratorMemoryError  # noqa: E402
from ktdesk_engine.kernels.handoff import HandOffError  # noqa: E402
from ktdesk_engine.kv_cache import CachedSequence  # noqa: E402


def numbered(message: str, code: int) -> Exception:
    """As torch raises them."""
    error: Exception = torch.AcceleratorError(message)
    error.error_code = code  # type: ignore[attr-defined]
    return error


LOST = [
    numbered("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...", 700),
    numbered("CUDA error: unspecified launch failure", 719),
    numbered("CUDA error: uncorrectable ECC error encountered", 214),
    RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
    RuntimeError("CUDA error: unknown error"),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: str(error)[:40])
def test_a_context_that_is_gone_is_a_lost_gpu(error: Exception) -> None:
    with pytest.raises(AcceleratorLostError, match=r"^the GPU is lost \(.*\): load the model anew") as caught, \
            engine_errors():  # fmt: skip
        raise error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        numbered("CUDA error: out of memory", 2),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
)
def test_full_memory_is_no_failure_of_another_kind(error: Exception) -> None:
    with pytest.raises(AcceleratorMemoryError), engine_errors():
        raise error


def test_a_capture_that_was_broken_off_says_why() -> None:
    @contextmanager
    def capture() -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    with pytest.raises(AcceleratorMemoryError), engine_errors(), capture():
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_other_failures_of_the_gpu_do_not_lose_it() -> None:
    with pytest.raises(AcceleratorError, match=r"^the GPU failed: CUDA error: invalid argument$") as caught, \
            engine_errors():  # fmt: skip
        raise numbered("CUDA error: invalid argument", 1)
    assert not isinstance(caught.value, AcceleratorLostError)


@pytest.mark.parametrize("error", [HandOffError("the CPU did not answer"), RuntimeError("shapes do not fit")])
def test_what_is_not_of_the_gpu_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, engine_errors():
        raise error
    assert caught.value is error


def test_full_memory_in_mid_run_moves_experts_to_the_cpu_and_the_step_is_computed(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """torch's own error, in the middle of a step."""
    path = tmp_path / "model.gguf"
    write_tiny("qwen3moe", path)
    monkeypatch.setattr(
        "ktdesk_engine.engine.open_accelerator", lambda kind, pool, memory: CudaAccelerator(device, pool)
    )
    honest, calls = CudaAccelerator.attention, []

    def full_once(self: CudaAccelerator, *arguments: object) -> object:
        calls.append(1)
        if len(calls) == 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return honest(self, *arguments)  # type: ignore[arg-type]

    config = EngineConfig(
        context=64, num_threads=1, compute="float32", program=False, accelerator="cuda", accelerator_experts=20,
        stream_prompts=False,
    )  # fmt: skip
    rows = []
    for attention in (honest, full_once):
        monkeypatch.setattr(CudaAccelerator, "attention", attention)
        with Engine.load(path, config) as engine:
            sequence = CachedSequence()
            engine.runner.prefill(sequence, [70, 71])
            rows.append(engine.runner.decode([sequence], [5])[0].copy())
            resident = engine.experts.num_resident
    assert resident == 10
    assert abs(rows[0] - rows[1]).max() < 2e-5
    assert "out of memory: experts move to the CPU, 10 stay" in caplog.text
