"""`ktdesk chat`: a conversation, line by line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gguf import GGUFWriter
from running import RunKtdesk, StartKtdesk

from ktdesk.asking import Asked, LocalModel, request_of
from ktdesk.chat_loop import Chat
from ktdesk.conversation import Conversation
from ktdesk.exit_codes import ExitCode
from ktdesk.options import AnswerOptions, SamplingOptions
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine

GREEDY = SamplingOptions(temperature=0.0)
SHORT = ("--max-tokens", "4", "--temperature", "0")


@pytest.fixture(scope="module")
def engine(talker: Path) -> Iterator[Engine]:
    with Engine.load(talker, EngineConfig(context=256, num_threads=1)) as engine:
        yield engine


@pytest.fixture
def chat(engine: Engine) -> Chat:
    return Chat(LocalModel(engine), AnswerOptions(max_tokens=4), GREEDY)


def roles(conversation: Conversation) -> str:
    return "".join(message["role"][0] for message in conversation.messages)


def test_each_line_is_answered_and_the_history_kept(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    assert chat.take("the cat\n")
    first = capsys.readouterr().out.removesuffix("\n")
    assert chat.take("the dog\n")
    second = capsys.readouterr().out.removesuffix("\n")
    assert chat.conversation.messages == [
        {"role": "user", "content": "the cat"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "the dog"},
        {"role": "assistant", "content": second},
    ]
    assert len(first) == len(second) == 4


def test_a_fallback_template_brings_its_own_stop_text(engine: Engine) -> None:
    answer = AnswerOptions(stop=["enough"])
    request = request_of(engine, Asked([{"role": "user", "content": "the cat"}], answer, GREEDY))
    assert request.stop == ("enough", "\nUser:")


def test_an_empty_line_is_no_message(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    assert chat.take("  \n")
    assert chat.conversation.messages == []
    assert capsys.readouterr() == ("", "")


def test_reset_forgets_the_turns_and_keeps_the_system_message(engine: Engine) -> None:
    chat = Chat(LocalModel(engine), AnswerOptions(max_tokens=2, system="Be brief."), GREEDY)
    chat.take("the cat")
    assert roles(chat.conversation) == "sua"
    chat.take("/reset")
    assert roles(chat.conversation) == "s"


def test_system_begins_anew_with_another_or_none(chat: Chat) -> None:
    chat.take("the cat")
    chat.take("/system Be kind.")
    assert chat.conversation.messages == [{"role": "system", "content": "Be kind."}]
    chat.take("/system")
    assert chat.conversation.messages == []


def test_retry_answers_the_last_message_again(engine: Engine) -> None:
    chat = Chat(LocalModel(engine), AnswerOptions(max_tokens=20), SamplingOptions(temperature=2.0, top_k=0, min_p=0.0))
    chat.take("the cat")
    before = list(chat.conversation.messages)
    chat.take("/retry")
    assert roles(chat.conversation) == "ua"
    assert chat.conversation.messages[0] == before[0]
    assert chat.conversation.messages[1] != before[1]


def test_retry_without_a_message_says_so(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    chat.take("/retry")
    assert "nothing to answer" in capsys.readouterr().err


def test_an_unknown_command_is_not_sent_to_the_model(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    assert chat.take("/rest")
    assert chat.conversation.messages == []
    assert "/help" in capsys.readouterr().err
    chat.take(" /rest")
    assert chat.conversation.messages[0]["content"] == "/rest"


def test_help_lists_every_command(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    chat.take("/help")
    text = capsys.readouterr().err
    assert all(name in text for name in ("/help", "/reset", "/system", "/retry", "/quit"))
    assert max(map(len, text.splitlines())) <= 80


def test_quit_leaves(chat: Chat) -> None:
    assert not chat.take("/quit\n")


def test_a_full_context_is_said_and_the_chat_goes_on(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(LocalModel(engine), AnswerOptions(max_tokens=4), GREEDY)
    chat.take("the cat")
    chat.take("x" * 300)
    error = capsys.readouterr().err
    assert "context of 256" in error
    assert "/reset" in error
    assert roles(chat.conversation) == "ua"
    chat.take("the dog")
    assert roles(chat.conversation) == "uaua"


def test_an_answer_that_fills_the_context_says_so(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(LocalModel(engine), AnswerOptions(), GREEDY)
    chat.take("the cat")
    assert "context of 256 tokens is full" in capsys.readouterr().err


def test_a_template_that_refuses_ends_a_turn_and_not_the_chat(
    ktdesk: RunKtdesk, model_with: Callable[[Callable[[GGUFWriter], None]], Path]
) -> None:
    template = "{{ raise_exception('only once') if messages | length > 1 else 'abc' }}"
    path = model_with(lambda writer: writer.add_chat_template(template))
    result = ktdesk("chat", path, *SHORT, stdin="one\ntwo\n/reset\nthree\n")
    assert result.code == 0
    assert "only once" in result.error
    assert result.err.count(" answer token") == 2


def test_lines_that_are_piped_in_are_answered_one_by_one(ktdesk: RunKtdesk, talker: Path) -> None:
    result = ktdesk("chat", talker, *SHORT, stdin="the cat\nthe dog\n/quit\nnever read\n")
    assert result.code == 0
    assert [len(line) for line in result.out.splitlines()] == [4, 4]
    assert result.err.count(" answer token") == 2
    assert ">" not in result.out


def test_ctrl_c_stops_the_answer_and_not_the_program(start_ktdesk: StartKtdesk, talker: Path) -> None:
    process = start_ktdesk("chat", talker, "--temperature", "0")
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("the cat\n")
        process.stdin.flush()
        assert process.stdout.read(1).isalpha()
        process.send_signal(signal.SIGINT)
        while process.stdout.read(1) not in ("\n", ""):  # the answer is cut short, and its line ended
            pass
        _out, err = process.communicate("/help\n/quit\n", timeout=60)
        assert process.returncode == ExitCode.OK
        assert "stopped" in err
        assert "/reset" in err
        assert "Traceback" not in err


def test_what_was_said_before_ctrl_c_stays_in_the_history(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = engine.stream

    def interrupted(request: object) -> Iterator[object]:
        for number, event in enumerate(stream(request)):  # type: ignore[arg-type]
            if number == 3:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(engine, "stream", interrupted)
    chat = Chat(LocalModel(engine), AnswerOptions(), GREEDY)
    chat.take("the cat")
    said = capsys.readouterr().out.removesuffix("\n")
    assert len(said) == 3
    assert chat.conversation.messages[1] == {"role": "assistant", "content": said}
