"""The demo model in the data folder: made once, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ktdesk_engine.engine import Engine
from ktdesk_profiles.demo import DemoProfile
from ktdesk_wizard import demo_model as demo_module
from ktdesk_wizard.demo_model import demo_model
from ktdesk_wizard.errors import HomeFolderError, SourceError
from ktdesk_wizard.report import Silence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "models" / "demo"


class Steps(Silence):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, what: str) -> None:
        self.steps.append(what.split()[0])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_it_is_made_once_and_runs(profile: DemoProfile, dense: Path, folder: Path) -> None:
    first, second = Steps(), Steps()
    path = demo_model(profile, folder, source=dense, report=first)
    assert demo_model(profile, folder, source=Path("not needed"), report=second) == path
    assert (first.steps, second.steps) == (["checking", "making"], [str(path)])  # is made already
    third = Steps()
    demo_model(profile, folder, report=third)
    assert third.steps == []
    assert names(folder) == ["tiny.gguf", "tiny.json"]
    with Engine.load(path) as engine:
        assert engine.score([1, 2, 3]).shape == (3, 266)


def test_a_file_that_was_cut_off_later_is_made_anew(profile: DemoProfile, dense: Path, folder: Path) -> None:
    path = demo_model(profile, folder, source=dense)
    size = path.stat().st_size
    os.truncate(path, size - 1)
    assert demo_model(profile, folder, source=dense).stat().st_size == size


def test_another_profile_is_made_anew(profile: DemoProfile, dense: Path, folder: Path) -> None:
    demo_model(profile, folder, source=dense)
    path = demo_model(replace(profile, num_experts=4), folder, source=dense)
    with Engine.load(path) as engine:
        assert engine.file.hparams().integer("expert_count") == 4


@pytest.mark.parametrize("note", ["", "{", "[]", '{"recipe": 1, "bytes": 2}'])
def test_a_note_that_says_nothing_counts_as_not_made(
    note: str, profile: DemoProfile, dense: Path, folder: Path
) -> None:
    path = demo_model(profile, folder, source=dense)
    path.with_suffix(".json").write_text(note)
    steps = Steps()
    demo_model(profile, folder, source=dense, report=steps)
    assert "making" in steps.steps


def test_the_note_has_size_and_hash(profile: DemoProfile, dense: Path, folder: Path) -> None:
    import hashlib

    path = demo_model(profile, folder, source=dense)
    note = json.loads(path.with_suffix(".json").read_text())
    assert note["bytes"] == path.stat().st_size
    assert note["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert note["recipe"]["recipe_version"] == demo_module.RECIPE_VERSION
    assert note["recipe"]["version"] == profile.version


def test_a_source_that_is_refused_leaves_nothing(profile: DemoProfile, dense: Path, folder: Path) -> None:
    with pytest.raises(SourceError):
        demo_model(replace(profile, sha256="0" * 64), folder, source=dense)
    assert names(folder) == []


def test_without_room_on_the_disk_nothing_is_begun(
    profile: DemoProfile, dense: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = profile.made_bytes

    monkeypatch.setattr(demo_module.shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(HomeFolderError, match=r"^[^\n]+$") as error:
        demo_model(profile, folder, source=dense)
    assert str(folder) in str(error.value)
    assert "8 MiB are free" in str(error.value)
    assert "KTDESK_HOME" in str(error.value)
    assert names(folder) == []


def test_a_disk_that_becomes_full_meanwhile_leaves_nothing(
    profile: DemoProfile, dense: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path, *_: object) -> None:
        target.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(demo_module, "upcycle", full)
    with pytest.raises(HomeFolderError, match="became full"):
        demo_model(profile, folder, source=dense)
    assert names(folder) == []


def test_a_folder_that_cannot_be_made_is_said(profile: DemoProfile, dense: Path, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(HomeFolderError, match="--home DIR") as error:
        demo_model(profile, blocker / "demo", source=dense)
    assert str(blocker / "demo") in str(error.value)


def test_ctrl_c_in_the_middle_leaves_nothing(profile: DemoProfile, dense: Path, folder: Path) -> None:
    class Impatient(Silence):
        def advance(self, done_bytes: int, total_bytes: int) -> None:
            if done_bytes > total_bytes / 2 and any(folder.glob(".making-*/tiny.gguf")):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo_model(profile, folder, source=dense, report=Impatient())
    assert names(folder) == []


KILLED_HALFWAY = """
import json, os, signal, sys
from pathlib import Path
from ktdesk_profiles.demo import DemoProfile
from ktdesk_wizard.demo_model import demo_model
from ktdesk_wizard.report import Silence

class Killer(Silence):
    def advance(self, done_bytes, total_bytes):
        if done_bytes > total_bytes / 2 and any(folder.glob(".making-*/tiny.gguf")):
            os.kill(os.getpid(), signal.SIGKILL)

profile, folder, source = DemoProfile(**json.loads(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])
demo_model(profile, folder, source=source, report=Killer())
"""


def test_a_kill_in_the_middle_leaves_no_model_and_the_next_making_tidies_up(
    profile: DemoProfile, dense: Path, folder: Path
) -> None:
    arguments = [json.dumps(asdict(profile)), str(folder), str(dense)]
    killed = subprocess.run([sys.executable, "-c", KILLED_HALFWAY, *arguments])
    assert killed.returncode == -signal.SIGKILL
    (left_behind,) = names(folder)
    assert left_behind.startswith(".making-")
    demo_model(profile, folder, source=dense)
    assert names(folder) == ["tiny.gguf", "tiny.json"]


def test_two_at_once_make_one_and_the_second_waits(profile: DemoProfile, dense: Path, folder: Path) -> None:
    makings: list[str] = []
    is_making, may_go_on = threading.Event(), threading.Event()

    class First(Silence):
        def step(self, what: str) -> None:
            if what.startswith("making"):
                makings.append("first")
                is_making.set()
                assert may_go_on.wait(60)

    class Second(Silence):
        def step(self, what: str) -> None:
            if what.startswith("waiting"):
                may_go_on.set()
            if what.startswith("making"):
                makings.append("second")

    paths: list[Path] = []
    first = threading.Thread(target=lambda: paths.append(demo_model(profile, folder, source=dense, report=First())))
    first.start()
    assert is_making.wait(60)
    paths.append(demo_model(profile, folder, source=dense, report=Second()))
    first.join()
    assert paths[0] == paths[1]
    assert makings == ["first"]
