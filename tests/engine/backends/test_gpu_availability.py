"""What keeps a GPU from being used, told in one line with what to do. Needs neither GPU nor torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ktdesk_engine.accelerators import open_accelerator
from ktdesk_engine.backends.cuda import availability
from ktdesk_engine.backends.cuda.availability import Installed, problem
from ktdesk_engine.errors import AcceleratorError
from ktdesk_engine.kernels import worker_pool

READY = Installed(12040, 0, None, None, None, "2.9.0", "12.8", "a card", (9, 0))


def test_nothing_is_wrong_where_all_is_there() -> None:
    assert problem(READY) is None


@pytest.mark.parametrize(
    ("found", "said", "advice"),
    [
        (Installed(None), "no NVIDIA driver", "until `nvidia-smi` lists it"),
        (Installed(12040, 100), "finds no card", "nvidia-smi -L"),
        (Installed(12040, 100, "7"), "CUDA_VISIBLE_DEVICES is '7', and no card is called so", "unset it"),
        (Installed(12040, 100, "GPU-0123"), "CUDA_VISIBLE_DEVICES is 'GPU-0123'", "numbers and UUIDs"),
        (Installed(12040, 803), "does not start (CUDA error 803)", "restart the machine"),
        (Installed(12040, missing="torch"), "torch is missing", "pip install 'ktdesk[gpu]'"),
        (Installed(12040, missing="triton"), "triton is missing", "pip install 'ktdesk[gpu]'"),
        (Installed(12040, import_problem="OSError: libcudart"), "cannot be imported (OSError: libcudart)", "anew"),
        (replace(READY, torch_cuda=None), "torch 2.9.0 is built without CUDA", "pip uninstall torch"),
        (replace(READY, driver_cuda=11040), "too old: it knows CUDA 11.4, and torch 2.9.0 is built for 12.8", "update"),
        (replace(READY, capability=None), "finds no card that it can use", "nvidia-smi"),
        (
            replace(READY, capability=None, visible="-1"),
            "CUDA_VISIBLE_DEVICES is '-1' and hides every card",
            "unset it",
        ),
        (Installed(12040, 100, ""), "CUDA_VISIBLE_DEVICES is '' and hides every card", "name one"),
        (
            replace(READY, capability=(7, 5)),
            "a card is too old: it has compute capability 7.5",
            "8.0 (Ampere) or newer",
        ),
    ],
)
def test_the_first_thing_that_is_missing_is_said_with_what_to_do(found: Installed, said: str, advice: str) -> None:
    line = problem(found)
    assert line is not None
    assert "\n" not in line
    assert said in line
    assert advice in line


def test_an_older_driver_of_the_same_major_version_will_do() -> None:
    assert problem(replace(READY, driver_cuda=12000)) is None


def test_who_asks_for_a_gpu_gets_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktdesk_engine.accelerators.look", lambda: Installed(12040, 100, "3"))
    with pytest.raises(AcceleratorError, match=r"^accelerator cuda: CUDA_VISIBLE_DEVICES is '3'"):
        open_accelerator("cuda", worker_pool(1), None)


def test_a_machine_without_driver_is_looked_at_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability.driver, "cuda_version", lambda: None)
    monkeypatch.setattr(availability, "find_spec", lambda name: pytest.fail("torch is of no use here"))
    assert availability.look().driver_cuda is None


def test_a_driver_that_does_not_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability.driver, "cuda_version", lambda: 12040)
    monkeypatch.setattr(availability.driver, "start", lambda: 999)
    assert availability.look().init_error == 999
