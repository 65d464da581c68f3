"""`ktdesk run`: one prompt in, one answer out, and nothing else on standard output."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from running import RunKtdesk, StartKtdesk
from tiny_models import TINY, write_model
from tokenizer_files import sentencepiece_file

from ktdesk.exit_codes import ExitCode
from ktdesk.expert_use import kept_uses
from ktdesk_engine import engine as engine_module
from ktdesk_engine.config import Request, SamplingConfig
from ktdesk_engine.engine import Engine

TinyModel = Callable[[str], Path]
ModelWith = Callable[[Callable[[GGUFWriter], None]], Path]

SHORT = ("--max-tokens", "6", "--temperature", "0")


def engine_answer(path: Path, text: str, max_tokens: int) -> str:
    """The greedy continuation of a raw text, from the engine itself."""
    with Engine.load(path) as engine:
        request = Request(engine.prompt_ids(text), SamplingConfig(temperature=0), max_tokens)
        return "".join(event.text for event in engine.stream(request))


def facts(ktdesk: RunKtdesk, *arguments: str | Path, stdin: str = "") -> dict[str, object]:
    result = ktdesk("run", *arguments, "--json", stdin=stdin)
    assert result.code == 0, result.err
    parsed = json.loads(result.out)
    assert isinstance(parsed, dict)
    return parsed


def test_standard_output_gets_the_answer_and_nothing_else(ktdesk: RunKtdesk, talker: Path) -> None:
    result = ktdesk("run", talker, "the thin man", "--raw", *SHORT)
    assert result.code == 0
    assert result.out == engine_answer(talker, "the thin man", 6) + "\n"
    assert "6 answer tokens at " in result.err
    assert "12 prompt tokens" not in result.out
    one = ktdesk("run", talker, "the thin man", "--raw", "--max-tokens", "1")
    assert ", 1 answer token, seed " in one.err  # of which no speed is known


def test_the_chat_template_is_used_unless_raw(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    raw = facts(ktdesk, tiny_model("llama-moe"), "an", "--raw", *SHORT)
    chat = facts(ktdesk, tiny_model("llama-moe"), "an", *SHORT)
    assert raw["num_prompt_tokens"] == 1
    assert chat["num_prompt_tokens"] == len(engine_ids(tiny_model("llama-moe"), [{"role": "user", "content": "an"}]))


def engine_ids(path: Path, messages: list[dict[str, str]]) -> tuple[int, ...]:
    with Engine.load(path) as engine:
        return engine.chat_ids(messages)


def test_a_system_message_comes_first(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    path = tiny_model("llama-moe")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "an"}]
    answer = facts(ktdesk, path, "an", "--system", "Be brief.", *SHORT)
    assert answer["num_prompt_tokens"] == len(engine_ids(path, messages))


@pytest.mark.parametrize(
    ("argument", "piped", "prompt"),
    [
        ((), "the cat\n", "the cat"),
        (("-",), "the cat", "the cat"),
        (("the dog",), "", "the dog"),
        (("the dog",), "the cat\n\n", "the dog\n\nthe cat\n"),
    ],
)
def test_what_is_piped_in_comes_after_the_prompt(
    ktdesk: RunKtdesk, talker: Path, argument: tuple[str, ...], piped: str, prompt: str
) -> None:
    result = ktdesk("run", talker, *argument, "--raw", *SHORT, stdin=piped)
    assert result.out == engine_answer(talker, prompt, 6) + "\n"


@pytest.mark.parametrize("arguments", [(), ("-",), ("",)])
def test_no_prompt_at_all_is_a_usage_error(
    ktdesk: RunKtdesk, tiny_model: TinyModel, arguments: tuple[str, ...]
) -> None:
    result = ktdesk("run", tiny_model("llama-moe"), *arguments)
    assert result.code == ExitCode.USAGE
    assert "no prompt" in result.error


def test_piped_bytes_that_are_no_text_are_refused_with_their_place(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    result = ktdesk("run", tiny_model("llama-moe"), stdin=b"abc\xff")
    assert result.code == ExitCode.USAGE
    assert "0xff at 3" in result.error


def test_json_tells_answer_counts_timings_and_seed(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    path = tiny_model("llama-moe")
    answer = facts(ktdesk, path, "the", "--raw", "--max-tokens", "5", "--seed", "7", "--threads", "1")
    assert answer["model"] == str(path)
    assert answer["num_prompt_tokens"] == 1
    assert answer["finish_reason"] in ("stop", "length")
    assert answer["num_answer_tokens"] == len(answer["token_ids"])  # type: ignore[arg-type]
    assert answer["seed"] == 7
    assert answer["sampling"]["temperature"] == 0.7  # type: ignore[index]
    assert answer["engine"]["num_threads"] == 1  # type: ignore[index]
    for name in ("prefill_seconds", "decode_seconds", "load_seconds"):
        assert answer[name] > 0  # type: ignore[operator]
    assert "logprobs" not in answer


def test_json_with_logprobs_has_each_token_and_the_likeliest(ktdesk: RunKtdesk, talker: Path) -> None:
    answer = facts(ktdesk, talker, "the", "--raw", *SHORT, "--logprobs", "2")
    entries = answer["logprobs"]
    assert isinstance(entries, list)
    assert [entry["id"] for entry in entries] == answer["token_ids"]
    for entry in entries:
        first, second = entry["top"]
        assert first == {name: entry[name] for name in ("id", "token", "logprob")}  # greedy takes the likeliest
        assert second["logprob"] <= first["logprob"] <= 0


def test_the_same_seed_draws_the_same_answer_and_another_seed_another(ktdesk: RunKtdesk, talker: Path) -> None:
    def draw(seed: str) -> object:
        options = ("--temperature", "1.5", "--top-k", "0", "--max-tokens", "20", "--seed", seed)
        return facts(ktdesk, talker, "the", "--raw", *options)["token_ids"]

    assert draw("3") == draw("3")
    assert draw("3") != draw("4")


def test_a_stop_text_ends_the_answer_before_it(ktdesk: RunKtdesk, talker: Path) -> None:
    whole = engine_answer(talker, "the", 30)
    stop = whole[5:8]
    answer = facts(ktdesk, talker, "the", "--raw", "--temperature", "0", "--stop", "never there", "--stop", stop)
    assert answer["text"] == whole[: whole.index(stop)]
    assert answer["finish_reason"] == "stop"


def test_the_sampling_that_the_file_recommends_is_the_default(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    def edit(writer: GGUFWriter) -> None:
        writer.add_float32("general.sampling.temp", 0.25)
        writer.add_int32("general.sampling.top_k", 3)

    sampling = facts(ktdesk, model_with(edit), "the", "--max-tokens", "1", "--top-k", "9")["sampling"]
    assert sampling["temperature"] == 0.25  # type: ignore[index]
    assert sampling["top_k"] == 9  # type: ignore[index]


def test_the_template_is_told_whether_to_think(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    template = "{{ 'abcdefgh' if enable_thinking else 'ab' }}"
    path = model_with(lambda writer: writer.add_chat_template(template))
    assert facts(ktdesk, path, "x", "--max-tokens", "1", "--think")["num_prompt_tokens"] == 8
    assert facts(ktdesk, path, "x", "--max-tokens", "1", "--no-think")["num_prompt_tokens"] == 2


def test_a_template_that_refuses_ends_with_the_code_for_requests(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    path = model_with(lambda writer: writer.add_chat_template("{{ raise_exception('not today') }}"))
    result = ktdesk("run", path, "x")
    assert result.code == ExitCode.REQUEST
    assert "not today" in result.error
    assert ktdesk("run", path, "x", "--raw", *SHORT).code == 0


def test_a_prompt_longer_than_the_context_is_refused(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    result = ktdesk("run", tiny_model("llama-moe"), "--raw", "--context", "64", stdin="x" * 64)
    assert result.code == ExitCode.REQUEST
    assert "64" in result.error


def test_a_model_that_is_not_there_is_said_with_what_was_meant(ktdesk: RunKtdesk, tiny_model: TinyModel) -> None:
    path = tiny_model("llama-moe")
    result = ktdesk("run", path.with_name("tiny-lama-moe.gguf"), "x")
    assert result.code == ExitCode.MODEL_FILE
    assert f"did you mean {path}" in result.error


def test_a_file_that_is_no_model_is_refused(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html><p>Sign in</p>")
    result = ktdesk("run", page, "x")
    assert result.code == ExitCode.MODEL_FILE
    assert "web page" in result.error
    assert str(page) in result.error


def test_an_architecture_that_is_not_known_is_named_with_those_that_are(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = GGUFWriter(path, "mamba9")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    result = ktdesk("run", path, "x")
    assert result.code == ExitCode.UNSUPPORTED
    assert "'mamba9'" in result.error
    assert "llama" in result.error


def test_a_context_that_does_not_fit_the_memory_is_refused(
    ktdesk: RunKtdesk, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "available_memory_bytes", lambda: 1000)
    result = ktdesk("run", tiny_model("llama-moe"), "x", "--context", "512")
    assert result.code == ExitCode.RESOURCES
    assert "512 tokens" in result.error


def test_a_reader_that_goes_away_ends_it_quietly(start_ktdesk: StartKtdesk, talker: Path) -> None:
    process = start_ktdesk("run", talker, "x", "--temperature", "0")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdin.close()
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == ExitCode.OUTPUT_CLOSED
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGHUP, ExitCode.HUNG_UP),
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.TERMINATED),
    ],
)
def test_a_signal_stops_it_and_what_was_printed_stays(
    start_ktdesk: StartKtdesk, talker: Path, number: signal.Signals, code: ExitCode
) -> None:
    handler = signal.signal(number, signal.SIG_DFL)  # whatever the tests were started under, nohup say
    try:
        process = start_ktdesk("run", talker, "x", "--temperature", "0")
    finally:
        signal.signal(number, handler)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.close()
        first = process.stdout.read(1)
        process.send_signal(number)
        process.stdin = None  # it is closed: communicate must not flush it
        out, err = process.communicate(timeout=60)
        assert process.returncode == code
        assert len(first + out) >= 1
        assert "Traceback" not in err


def test_under_nohup_a_terminal_that_is_closed_does_not_stop_it(start_ktdesk: StartKtdesk, talker: Path) -> None:
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the process inherits it
    try:
        process = start_ktdesk("run", talker, "x", "--temperature", "0", "--max-tokens", "300")
    finally:
        signal.signal(signal.SIGHUP, handler)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.stdout.read(1)
        process.send_signal(signal.SIGHUP)
        assert len(process.stdout.read()) == 300
        assert process.wait(60) == 0


def test_a_raw_text_goes_on_with_the_space_that_the_model_says(ktdesk: RunKtdesk, model_with: ModelWith) -> None:
    pieces = dict.fromkeys(["\u2581a", *"abcdef"], 0.0)
    vocabulary = sentencepiece_file(pieces).metadata  # as many tokens as the model has rows
    word = len(vocabulary["tokenizer.ggml.tokens"]) - len(pieces)

    def edit(writer: GGUFWriter) -> None:
        for key in [key for key in writer.kv_data[0] if key.startswith("tokenizer.")]:
            del writer.kv_data[0][key]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(vocabulary["tokenizer.ggml.tokens"])
        writer.add_token_types(vocabulary["tokenizer.ggml.token_type"].tolist())
        writer.add_token_scores(vocabulary["tokenizer.ggml.scores"].tolist())
        head = writer.tensors[0]["output.weight"].tensor
        head[np.arange(len(head)) != word] = 0.0

    path = model_with(edit)
    said = [ktdesk("run", path, prompt, "--raw", "--max-tokens", "1", "--temperature", "0").out for prompt in "abcdef"]
    assert " a\n" in said
    assert "a\n" not in said


def test_no_file_descriptors_for_the_templates_process_is_a_lack_of_resources(
    start_ktdesk: StartKtdesk, talker: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = start_ktdesk("run", talker, "x")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (10, limits[1]))
    with process:
        _out, err = process.communicate("", timeout=60)
    assert process.returncode == ExitCode.RESOURCES
    assert "raise ulimit -n" in err


def test_a_dense_model_runs_as_well(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    write_model(TINY["llama-dense"], path, "llama-dense", seed=1)
    assert ktdesk("run", path, "the", *SHORT).code == 0


def test_a_model_that_is_loaded_here_keeps_how_its_experts_were_used(
    ktdesk: RunKtdesk, tiny_model: TinyModel, tmp_path: Path
) -> None:
    run = ("--home", tmp_path, "run", tiny_model("qwen3moe"), "the cat", "--raw", "--no-server", "--max-tokens", "4")
    assert ktdesk(*run, "--threads", "1").code == ExitCode.OK
    (first,) = kept_uses(tmp_path)
    assert first.rates.sum() > 0
    assert ktdesk(*run, "--threads", "1").code == ExitCode.OK
    (second,) = kept_uses(tmp_path)
    assert second.rates.sum() > 1.5 * first.rates.sum()
    assert "use" in ktdesk("--home", tmp_path, "profile", "ls").out
