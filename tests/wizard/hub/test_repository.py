"""What is in a repository, and what each refusal of a hub is in words."""

from __future__ import annotations

import pytest
from loopback_hub import COMMIT, Fault, LoopbackHub

from ktdesk_wizard.errors import FetchError, RefusedError, WishError
from ktdesk_wizard.hub import repository as hub_repository
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import locate
from ktdesk_wizard.hub.repository import Repository
from ktdesk_wizard.hub.sets import checked_set, gguf_sets, named_set
from ktdesk_wizard.hub.sources import find_repository, same_files, sources

FILES = (
    "README.md",
    "Q8_0/big-Q8_0-00001-of-00002.gguf",
    "Q8_0/big-Q8_0-00002-of-00002.gguf",
    "big-Q4_K_M.gguf",
    "big-UD-Q2_K_XL.gguf",
    "mmproj-F16.gguf",
    "Q6_K/big-Q6_K-00002-of-00003.gguf",
    "imatrix_unsloth.gguf",
)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_repository, "FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def big(hub: LoopbackHub) -> LoopbackHub:
    for number, path in enumerate(FILES):
        hub.add("owner/Big-GGUF", path, bytes([number]) * (1000 + number))
    return hub


def found(name: str = "owner/Big-GGUF", wished: list[str] | None = None, revision: str | None = None) -> Repository:
    return find_repository(Http(), sources(wished), name, revision, ["owner/Big-GGUF", "other/Small-GGUF"])


def test_all_files_are_listed_at_one_commit_with_size_and_hash(big: LoopbackHub) -> None:
    repository = found()
    assert repository.commit == COMMIT
    assert [file.path for file in repository.files] == sorted(FILES)
    by_path = {file.path: file for file in repository.files}
    assert by_path["big-Q4_K_M.gguf"].num_bytes == 1003
    assert by_path["big-Q4_K_M.gguf"].sha256 == big.add("x/y", "z", bytes([3]) * 1003)
    assert by_path["README.md"].sha256 is None
    assert by_path["big-Q4_K_M.gguf"].url == f"{big.url}/owner/Big-GGUF/resolve/{COMMIT}/big-Q4_K_M.gguf"


def test_shards_of_a_quantization_are_one_set_and_what_lies_beside_is_none(big: LoopbackHub) -> None:
    sets = gguf_sets(found().files)
    assert {each.quantization: len(each.files) for each in sets} == {"Q8_0": 2, "Q4_K_M": 1, "UD-Q2_K_XL": 1, "Q6_K": 1}
    assert named_set(sets, "4_k_m", "r").quantization == "Q4_K_M"
    assert named_set(sets, "q2_k_xl", "r").quantization == "UD-Q2_K_XL"
    with pytest.raises(FetchError, match=r"has no Q4_K_S: did you mean Q4_K_M\? It offers Q8_0, "):
        named_set(sets, "Q4_K_S", "r")
    with pytest.raises(FetchError, match="2 of 3 shards are missing at the source"):
        checked_set(next(each for each in sets if each.quantization == "Q6_K"), "r")


@pytest.mark.parametrize(
    ("path", "quantization"),
    [
        ("Qwen3-30B-A3B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
        ("gpt-oss-120b-mxfp4-00001-of-00003.gguf", "MXFP4"),
        ("UD-IQ1_S/x-UD-IQ1_S-00001-of-00004.gguf", "UD-IQ1_S"),
        ("BF16/model-00001-of-00004.gguf", "BF16"),
        ("model.IQ4_XS.gguf", "IQ4_XS"),
        ("x-UD-TQ1_0.gguf", "UD-TQ1_0"),
        ("gemma-3-27b-it-q4_0_q8.gguf", "Q4_0_Q8"),
        ("odd.gguf", "odd"),
    ],
)
def test_the_quantization_is_read_from_the_name_or_the_folder(hub: LoopbackHub, path: str, quantization: str) -> None:
    hub.add("o/n", path, b"x")
    assert [each.quantization for each in gguf_sets(found("o/n").files)] == [quantization]


def test_a_file_is_located_at_another_host_where_no_token_goes(
    big: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    file = next(file for file in found().files if file.path == "big-Q4_K_M.gguf")
    location = locate(Http(), file)
    assert location.url.startswith(big.urls["cdn"])
    assert (location.token, location.num_bytes, location.sha256) == (None, 1003, file.sha256)
    assert "Authorization" not in location.headers
    assert {asked.token for asked in big.asked if "/resolve/" in asked.path} == {"hf_secret"}


def test_an_unknown_name_is_told_with_those_that_are_near(big: LoopbackHub) -> None:
    with pytest.raises(FetchError, match=r"no repository owner/Bigg-GGUF .*did you mean owner/Big-GGUF\?.*HF_TOKEN"):
        found("owner/Bigg-GGUF")
    with pytest.raises(FetchError, match="has no revision 'v9'"):
        found(revision="v9")


@pytest.mark.parametrize(("token", "advice"), [(None, "set HF_TOKEN"), ("hf_other", "your token has none")])
def test_a_gated_file_is_told_with_what_to_do(
    big: LoopbackHub, monkeypatch: pytest.MonkeyPatch, token: str | None, advice: str
) -> None:
    big.gated.add("owner/Big-GGUF")
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(RefusedError, match=advice):
        locate(Http(), found().files[1])


def test_busy_hubs_are_asked_again_and_dead_ones_told(big: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    big.hub_faults = [Fault(status=503), Fault(status=429, headers=(("Retry-After", "0"),))]
    assert found().id == "owner/Big-GGUF"
    big.hub_faults = [Fault(status=503)] * 3
    with pytest.raises(FetchError, match="answered 503 for owner/Big-GGUF, 3 times"):
        found()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match=r"no connection to 127\.0\.0\.1:9: .*; check the network"):
        found()


def test_offline_nothing_is_asked(big: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FetchError, match="HF_HUB_OFFLINE is set"):
        found()
    assert big.asked == []


def test_modelscope_serves_files_of_the_same_hash(big: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELSCOPE_DOMAIN", big.url)
    alone = found(wished=["modelscope"])
    assert {file.path for file in alone.files} == set(FILES)
    location = locate(Http(), next(file for file in alone.files if file.path == "big-Q4_K_M.gguf"))
    assert location.num_bytes == 1003
    monkeypatch.setenv("MODELSCOPE_DOMAIN", big.url.replace("127.0.0.1", "localhost"))
    others = same_files(Http(), sources(["hub", "modelscope"]), found())
    assert set(others) == set(FILES) - {"README.md"}


def test_where_the_first_source_is_dead_the_next_one_answers(big: LoopbackHub) -> None:
    assert found(wished=["http://127.0.0.1:9", "hub"]).source == big.url
    with pytest.raises(WishError, match="a source is hub, modelscope, or the address"):
        sources(["nowhere"])
