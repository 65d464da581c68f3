"""`ktdesk chat`: reads lines, writes answers, until there are no more lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from ktdesk.answering import print_answer
from ktdesk.asking import Asked, AskedModel
from ktdesk.command import tell_error
from ktdesk.conversation import Conversation
from ktdesk.lossy import banner
from ktdesk.options import AnswerOptions, SamplingOptions
from ktdesk.terminal import note, on_one_line
from ktdesk.text_input import piped_lines
from ktdesk_engine.errors import ContextOverflowError, RequestError

PROMPT = "> "
HELP = """\
/help          this list
/reset         forget the conversation; the system message stays
/system TEXT   begin anew, with TEXT told to the model first
/retry         answer the last message once more
/quit          leave (Ctrl-C or Ctrl-D at the prompt, too)
A message that begins with a slash: put a space before it."""


def chat_with(model: AskedModel, answer: AnswerOptions, sampling: SamplingOptions) -> None:
    chat = Chat(model, answer, sampling)
    if sys.stdin.isatty():
        note(
            f"{on_one_line(model.title)}, context {model.context:,} tokens. /help lists commands."
            + banner(model.config_facts)
        )
        if model.engine_note is not None:
            note(model.engine_note)
    for line in _lines():
        if not chat.take(line):
            return


class Chat:
    """One chat. Its commands are the methods in `_commands`."""

    def __init__(self, model: AskedModel, answer: AnswerOptions, sampling: SamplingOptions) -> None:
        self._model = model
        self._answer = answer
        self._sampling = sampling
        self.conversation = Conversation(answer.system)
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._help,
            "/reset": self._reset,
            "/system": self._system,
            "/retry": self._retry,
        }

    def take(self, line: str) -> bool:
        """One line of the user's. False: they want to leave."""
        name, _, rest = line.rstrip().partition(" ")
        if name in ("/quit", "/exit"):
            return False
        if name in self._commands:
            self._commands[name](rest.strip())
        elif name.startswith("/"):
            note(f"there is no {name}; /help lists what there is")
        elif line.strip():
            self._ask(line.strip())
        return True

    def _help(self, _: str) -> None:
        note(HELP)

    def _reset(self, _: str) -> None:
        self.conversation.reset()
        note("the conversation is forgotten")

    def _system(self, text: str) -> None:
        self.conversation = Conversation(text or None)
        note("a new conversation, with that told first" if text else "a new conversation, with nothing told first")

    def _retry(self, _: str) -> None:
        question = self.conversation.take_back()
        if question is None:
            note("there is nothing to answer yet")
        else:
            self._ask(question)

    def _ask(self, text: str) -> None:
        """One turn. Ctrl-C ends the answer; what was written of it stays in the conversation."""
        self.conversation.ask(text)
        written: list[str] = []
        try:
            asked = Asked(self.conversation.messages, self._answer, self._sampling)
            answer = print_answer(self._model, asked, written)
            if answer.finish_reason == "length":
                self._explain_length(answer.timings.num_prompt_tokens)
        except KeyboardInterrupt:
            print(flush=True)
            note("stopped")
        except RequestError as error:
            self.conversation.take_back()
            tell_error(_advice(error))
            return
        self.conversation.answer("".join(written))

    def _explain_length(self, num_prompt_tokens: int) -> None:
        room = self._model.context - num_prompt_tokens
        if self._answer.max_tokens is None or self._answer.max_tokens >= room:
            note(f"the context of {self._model.context:,} tokens is full: /reset begins anew")
        else:
            note(f"stopped at --max-tokens {self._answer.max_tokens}")


def _advice(error: RequestError) -> str:
    if isinstance(error, ContextOverflowError):
        return f"{error}. Your message was not taken: /reset begins anew"
    return str(error)


def _lines() -> Iterator[str]:
    """Lines of the user's, with a prompt and line editing on a terminal, until Ctrl-C, Ctrl-D or the end."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from piped_lines()
        return
    with contextlib.suppress(ImportError):
        import readline  # input() uses it once it is imported

        for rule in ("input-meta on", "convert-meta off", "output-meta on"):  # also where the locale is ASCII
            readline.parse_and_bind(f"set {rule}")
    while True:
        try:
            line = input(PROMPT)
        except (EOFError, KeyboardInterrupt):
            print()
            return
        except UnicodeDecodeError:
            note("that line is not UTF-8 and was not taken")
            continue
        yield line
