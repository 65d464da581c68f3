"""The self-test of a GPU with a GPU's own kernels, and small sizes: in Triton's interpreter where there is no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra gpu is not installed")

from ktdesk_engine import kernels  # noqa: E402
from ktdesk_engine.backends.cuda import products  # noqa: E402
from ktdesk_engine.backends.cuda.accelerator import CudaAccelerator, as_accelerator  # noqa: E402
from ktdesk_engine.benchmark.layer import LayerShape  # noqa: E402
from ktdesk_engine.quants.formats import WeightType  # noqa: E402
from ktdesk_wizard.gpu_test.running import all_checks, run_checks  # noqa: E402
from ktdesk_wizard.gpu_test.subject import SMALL, Subject  # noqa: E402

SIZES = replace(
    SMALL, weight_types=(WeightType.Q4_K,), experts=LayerShape(32, 32, 3, 2), repeat=1, context=70, copy_bytes=4096
)
FAST = ("products", "experts, swiglu_oai", "norms", "rope", "routing, sigmoid", "attention, grouped queries, F16")
FAST = (*FAST, "copies", "hand-off, one way", "reading Q8_0")


@pytest.fixture
def subject(device: torch.device) -> Subject:
    accelerator = CudaAccelerator(device, kernels.worker_pool(1))
    return Subject("cuda", as_accelerator(accelerator), accelerator.pool, SIZES)


def outcomes(subject: Subject, *names: str) -> dict[str, str]:
    checks = [check for check in all_checks(subject) if check.name.startswith(names)]
    report = run_checks(subject, checks, lambda outcome: None)
    return {outcome.check: outcome.cause or outcome.status for outcome in report.outcomes}


def test_a_gpus_kernels_pass(subject: Subject) -> None:
    found = outcomes(subject, *FAST)
    assert len(found) == len(FAST)
    assert set(found.values()) == {"ok"}


def test_a_kernel_that_leaves_something_out_is_named(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The biases."""
    honest = products.product_kernel

    class Careless:
        def __getitem__(self, grid: Any) -> Any:
            def launch(*arguments: Any, **constants: Any) -> None:
                honest[grid](*arguments, **{**constants, "HAS_BIAS": False})

            return launch

    monkeypatch.setattr(products, "product_kernel", Careless())
    found = outcomes(subject, "products", "norms")
    assert found["products with Q4_K"].startswith("1 tokens: off by")
    assert found["norms"] == "ok"
