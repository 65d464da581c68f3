"""`ktdesk pull` as a user meets it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter, PoolingType
from loopback_hub import Fault, LoopbackHub
from running import RunKtdesk
from tiny_models import TINY, write_model

from ktdesk.exit_codes import ExitCode
from ktdesk_engine.errors import UnsupportedError
from ktdesk_wizard.hub.headers import TRIES

TinyModel = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model of this machine's user is adopted."""
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("KTDESK_HOME", str(tmp_path / "home"))


@pytest.fixture
def model(hub: LoopbackHub, tiny_model: TinyModel) -> Path:
    path = tiny_model("llama-moe")
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", path.read_bytes())
    return path


def test_a_model_is_pulled_listed_and_answers_by_its_name(ktdesk: RunKtdesk, model: Path, tmp_path: Path) -> None:
    result = ktdesk("pull", "owner/Tiny-GGUF:F32")
    path = tmp_path / "home/models/owner/Tiny-GGUF/tiny-F32.gguf"
    assert (result.code, result.out) == (ExitCode.OK, f"{path}\n")
    assert path.read_bytes() == model.read_bytes()
    assert "its SHA-256 is right" in result.err
    assert "owner/Tiny-GGUF:F32" in ktdesk("models").out
    assert ktdesk("run", "tiny", "a", "--raw", "--max-tokens", "1").code == ExitCode.OK
    assert ktdesk("models", "verify").code == ExitCode.OK


def test_without_a_quantization_the_one_for_this_machine_comes(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path
) -> None:
    hub.add("owner/Tiny-GGUF", "tiny-Q8_0.gguf", model.read_bytes() + bytes(1000))
    facts = json.loads(ktdesk("pull", "owner/Tiny-GGUF", "--json").out)
    assert (facts["name"], facts["quantization"]) == ("owner/Tiny-GGUF:Q8_0", "Q8_0")
    assert facts["files"][0]["origin"] == "fetched"
    assert facts["fetched_bytes"] == facts["files"][0]["num_bytes"]


def test_a_url_without_a_hash_is_pulled_and_says_what_is_known(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, tmp_path: Path
) -> None:
    result = ktdesk("pull", f"{hub.url}/plain/owner/Tiny-GGUF/tiny-F32.gguf")
    assert Path(result.out.strip()).read_bytes() == model.read_bytes()
    assert "its source tells no SHA-256" in result.err
    name = ktdesk("models", "--json").out
    assert json.loads(name)["models"][0]["name"].endswith("/plain/owner/Tiny-GGUF/tiny-F32")


def test_a_gated_repository_opens_to_its_token(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add("owner/Tiny-GGUF")
    hub.token = "hf_right"
    result = ktdesk("pull", "owner/Tiny-GGUF:F32")
    assert result.code == ExitCode.FETCH
    assert f"{hub.url}/owner/Tiny-GGUF" in result.error
    assert "HF_TOKEN" in result.error
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert ktdesk("pull", "owner/Tiny-GGUF:F32").code == ExitCode.OK


def test_what_the_hub_s_cache_has_is_linked_even_offline(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("ktdesk_wizard.download.adopting.MIN_BYTES", 1)
    assert "neither the store nor" in ktdesk("pull", "owner/Tiny-GGUF:F32").error
    folder = tmp_path / "cache" / "models--owner--Tiny-GGUF"
    blob = folder / "blobs" / hashlib.sha256(model.read_bytes()).hexdigest()
    for made in ("blobs", "refs", "snapshots/c0ffee"):
        (folder / made).mkdir(parents=True)
    shutil.copy(model, blob)
    (folder / "refs" / "main").write_text("c0ffee")
    (folder / "snapshots" / "c0ffee" / "tiny-F32.gguf").symlink_to(blob)
    result = ktdesk("pull", "owner/Tiny-GGUF:F32", "--json")
    assert json.loads(result.out)["files"][0]["original"] == str(blob)
    assert hub.asked == []
    assert ktdesk("pull", "owner/Tiny-GGUF:F32").code == ExitCode.OK  # it is in the store now


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nobody-knows-7b",), ExitCode.MODEL_FILE, "`ktdesk plan --list` shows the catalogue"),
        (("qwen3-30b-a3",), ExitCode.MODEL_FILE, "did you mean qwen3-30b-a3b"),
        (("owner/Tiny-GGUF:Q9",), ExitCode.FETCH, "has no Q9: "),
        (("owner/Tiny-GGUF:F32", "--quant", "Q8_0"), ExitCode.USAGE, "owner/Tiny-GGUF:F32 and --quant Q8_0 contradict"),
        (("owner/Tiny-GGUF:F32", "--quant", ""), ExitCode.USAGE, "--quant is empty"),
        ((":Q4_K",), ExitCode.MODEL_FILE, "':Q4_K' names no model"),
        pytest.param((__file__,), ExitCode.MODEL_FILE, "is a file that is here", id="a file"),
        (("owner//Tiny-GGUF",), ExitCode.MODEL_FILE, "'owner//Tiny-GGUF' is no OWNER/REPOSITORY"),
        (("owner/Unknown",), ExitCode.FETCH, "has no repository owner/Unknown"),
        (("owner/Tiny-GGUF", "--revision", "v2"), ExitCode.FETCH, "has no revision 'v2'"),
        (("owner/Tiny-GGUF:F32", "--adopt", "/nowhere"), ExitCode.USAGE, "no such folder"),
        (("owner/Tiny-GGUF:F32", "--source", "ftp://x"), ExitCode.USAGE, "a source is hub, modelscope, or"),
        (("http://",), ExitCode.USAGE, "not the address of a GGUF file"),
        (("owner/Tiny-GGUF:F32", "--connections", "0"), ExitCode.USAGE, "connections"),
        (("http://127.0.0.1:9/x.gguf",), ExitCode.FETCH, "no connection to 127.0.0.1:9"),
    ],
)
def test_what_cannot_be_pulled_is_one_line(
    ktdesk: RunKtdesk, model: Path, arguments: tuple[str, ...], code: ExitCode, message: str
) -> None:
    result = ktdesk("pull", *arguments)
    assert result.code == code
    assert message in result.error


def test_a_file_that_is_not_what_its_hash_says_leaves_nothing_behind(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, tmp_path: Path
) -> None:
    hub.fault_for = lambda asked: Fault(flip_at=model.stat().st_size - 5)
    result = ktdesk("pull", "owner/Tiny-GGUF:F32")
    assert result.code == ExitCode.FETCH
    assert "fetched 3 times, and its SHA-256 is" in result.error
    assert list((tmp_path / "home").rglob("*.gguf*")) == []


def not_to_be_looked_at(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pull's look at the headers fails for good, and what it then fetches does not."""
    monkeypatch.setattr("ktdesk_wizard.hub.headers.FIRST_WAIT_SECONDS", 0.0)
    hub.faults = [Fault(encoding="gzip")] * TRIES


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda data: b"<html>" + data, "a web page"),
        (lambda data: data[:-300], "of a file of"),
        (lambda data: data[:4] + bytes([99]) + data[5:], "GGUF version 99 is not known"),
    ],
    ids=["a page", "cut off", "nonsense"],
)
def test_a_file_that_is_what_its_hash_says_but_no_model_stays_and_is_never_taken_for_one(
    ktdesk: RunKtdesk,
    hub: LoopbackHub,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[bytes], bytes],
    problem: str,
) -> None:
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", spoil(model.read_bytes()))
    looked = ktdesk("pull", "owner/Tiny-GGUF:F32")
    assert (looked.code, looked.out) == (ExitCode.MODEL_FILE, "")
    assert problem in looked.error
    assert "nothing was fetched; --force fetches it all the same" in looked.error
    assert json.loads(ktdesk("models", "--json").out)["models"] == []
    not_to_be_looked_at(hub, monkeypatch)
    result = ktdesk("pull", "owner/Tiny-GGUF:F32")
    assert (result.code, result.out) == (ExitCode.MODEL_FILE, "")
    assert problem in result.error
    assert "`ktdesk models rm owner/Tiny-GGUF:F32` deletes it" in result.error
    kept = tmp_path / "home/models/owner/Tiny-GGUF/tiny-F32.gguf"
    assert kept.read_bytes() == spoil(model.read_bytes())
    (listed,) = json.loads(ktdesk("models", "--json").out)["models"]
    assert listed["state"] == "unusable"
    assert problem in listed["problem"]
    assert problem in ktdesk("models").out
    for again in (("run", "tiny", "a"), ("plan", "tiny"), ("models", "verify"), ("pull", "owner/Tiny-GGUF:F32")):
        assert ktdesk(*again).code == ExitCode.MODEL_FILE, again
    setup = ktdesk("setup", "owner/Tiny-GGUF:F32", "--yes")
    assert (setup.code, problem in setup.error) == (ExitCode.MODEL_FILE, True)
    forced = ktdesk("pull", "owner/Tiny-GGUF:F32", "--force")
    assert (forced.code, forced.out) == (ExitCode.OK, f"{kept}\n")
    assert problem in forced.err


def test_what_was_no_model_is_one_once_its_source_has_another(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", b"<html>")
    not_to_be_looked_at(hub, monkeypatch)
    assert ktdesk("pull", "owner/Tiny-GGUF:F32").code == ExitCode.MODEL_FILE
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", model.read_bytes())
    assert "`ktdesk pull owner/Tiny-GGUF:F32 --update`" in ktdesk("pull", "owner/Tiny-GGUF:F32").error
    assert ktdesk("pull", "owner/Tiny-GGUF:F32", "--update").code == ExitCode.OK
    assert json.loads(ktdesk("models", "--json").out)["models"][0]["state"] == "whole"


@pytest.mark.parametrize(
    ("make", "code", "problem"),
    [
        (lambda path: write_bert(path), ExitCode.UNSUPPORTED, "the architecture 'bert' is not one"),
        (lambda path: write_vocabulary(path), ExitCode.MODEL_FILE, "it has no tensors"),
        (lambda path: write_embedder(path), ExitCode.UNSUPPORTED, "pooling_type is 3"),
        (lambda path: path.write_bytes(bytes(9_000_000)), ExitCode.MODEL_FILE, "not a GGUF file"),
    ],
    ids=["of another architecture", "a vocabulary", "for embeddings", "no GGUF"],
)
@pytest.mark.parametrize("knows_ranges", [True, False], ids=["ranges", "no ranges"])
def test_what_does_not_run_is_refused_before_it_is_fetched(
    ktdesk: RunKtdesk,
    hub: LoopbackHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    code: ExitCode,
    problem: str,
    knows_ranges: bool,
) -> None:
    make(tmp_path / "other.gguf")
    hub.add("owner/Other-GGUF", "other-F32.gguf", (tmp_path / "other.gguf").read_bytes())
    hub.fault_for = lambda asked: None if knows_ranges else Fault(ignore_range=True)
    monkeypatch.setattr("ktdesk.model_report.check_with_llamacpp", not_installed)
    result = ktdesk("pull", "owner/Other-GGUF:F32")
    assert (result.code, result.out) == (code, "")
    assert problem in result.error
    assert "--force fetches it all the same" in result.error
    assert str(tmp_path) not in result.error
    assert "ktdesk-headers" not in result.error
    assert not (tmp_path / "home/models/owner").exists()
    assert len(hub.bytes_asked()) == 1
    assert ktdesk("pull", "owner/Other-GGUF:F32", "--force").code == ExitCode.OK


def not_installed(file: object) -> None:
    raise UnsupportedError("llama.cpp is not installed")


def write_bert(path: Path) -> None:
    writer = GGUFWriter(path, "bert")
    writer.add_block_count(1)
    _written(writer)


def write_embedder(path: Path) -> None:
    write_model(TINY["qwen3"], path, "embedder", 1, lambda writer: writer.add_pooling_type(PoolingType.LAST))


def write_vocabulary(path: Path) -> None:
    _written(GGUFWriter(path, "llama"), has_tensors=False)


def _written(writer: GGUFWriter, *, has_tensors: bool = True) -> None:
    if has_tensors:
        writer.add_tensor("token_embd.weight", np.zeros((1500, 1024), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_name_that_commands_print_is_taken_also_of_what_is_here(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "home/models/own folder/Mine v1.gguf"
    own.parent.mkdir(parents=True)
    shutil.copy(model, own)
    for name in ("own folder/Mine v1", "mine v1", "tiny llama-moe"):
        result = ktdesk("pull", name)
        assert (result.code, result.out) == (ExitCode.OK, f"{own}\n")
    assert hub.asked == []
    url = f"{hub.url}/plain/owner/Tiny-GGUF/tiny-F32.gguf"
    fetched = Path(ktdesk("pull", url).out.strip())
    of_url = next(
        each["name"] for each in json.loads(ktdesk("models", "--json").out)["models"] if "plain" in each["name"]
    )
    fetched.unlink()
    assert f"`ktdesk pull {of_url}` fetches the rest" in ktdesk("run", of_url, "a").error
    assert ktdesk("pull", of_url).out == f"{fetched}\n"


def test_a_folder_that_cannot_be_written_is_one_line(ktdesk: RunKtdesk, model: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models").write_text("a file, where a folder is needed")
    result = ktdesk("pull", "owner/Tiny-GGUF:F32")
    assert result.code == ExitCode.RESOURCES
    assert "cannot be written" in result.error


@pytest.mark.parametrize("path", ["x.gguf", "some/folder/x.gguf"])
def test_a_pull_that_never_began_leaves_no_folders(ktdesk: RunKtdesk, tmp_path: Path, path: str) -> None:
    assert ktdesk("pull", f"http://127.0.0.1:9/{path}").code == ExitCode.FETCH
    assert list((tmp_path / "home/models").iterdir()) == []


def test_removing_a_model_of_a_url_leaves_no_folders(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, tmp_path: Path
) -> None:
    assert ktdesk("pull", f"{hub.url}/plain/owner/Tiny-GGUF/tiny-F32.gguf").code == ExitCode.OK
    name = json.loads(ktdesk("models", "--json").out)["models"][0]["name"]
    assert ktdesk("models", "rm", name).code == ExitCode.OK
    assert list((tmp_path / "home/models").iterdir()) == []


def test_a_pull_that_is_stopped_says_that_the_same_command_goes_on(
    ktdesk: RunKtdesk, hub: LoopbackHub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ktdesk.pulling.pull", stop)
    result = ktdesk("pull", "owner/Tiny-GGUF:F32")
    assert (result.code, result.out) == (ExitCode.INTERRUPTED, "")
    assert result.err.splitlines()[-1:] == ["stopped: what has come is kept, and the same command goes on from there"]
