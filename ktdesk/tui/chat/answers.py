"""The answer that is asked for: at once or when there is a model, followed while it comes, and how it ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ktdesk.conversations.errors import ConversationError
from ktdesk.errors import AnswerRefusedError, AppError, ServerGoneError
from ktdesk.tui.chat.answer_signals import AnswerSignals
from ktdesk.tui.chat.entry import duration
from ktdesk.tui.chat.transcript import Transcript
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.widgets.failure_bar import FailureBar

if TYPE_CHECKING:
    from ktdesk.conversations.answering import Answering
    from ktdesk.conversations.messages import Message
    from ktdesk.model_link import LinkState
    from ktdesk.tui.chat.screen import ChatScreen

MAX_SHARE, MAX_PAUSE = 0.05, 1.0
"""Of one core, that pictures of a streaming answer may take: slower ones come less often, but once a second."""
RELOAD = "reload"
"""The step that loads the model again, and asks nothing."""
SERVER_STOPS = "stopping"
"""The code of a refusal."""


class Answers:
    """Of the chat's screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self.is_wanted = False
        """An answer is asked for, but the model was not ready yet."""
        self._is_stopped_here = False
        """The server, while it answered."""

    def ask_unless_tools_wait(self) -> None:
        waiting = self._screen.session.waits_for_results
        if waiting:
            self._screen.show_doing(f"write what {harmless(waiting[0])} gave")
        else:
            self.ask()

    def ask(self) -> None:
        """At once, or as soon as the model is ready. Nothing where nothing was said."""
        screen, state = self._screen, self._screen.ktdesk.link_state
        if screen.session.conversation is None or not screen.session.conversation.path:
            self.is_wanted = False
            return
        if state is None or not state.is_ready:
            self.is_wanted = True
            self._explain_no_model(state)
            return
        self.is_wanted = self._is_stopped_here = False
        screen.query_one(FailureBar).clear()
        signals = AnswerSignals(screen.session)
        try:
            answering = screen.session.answer(state, screen.ktdesk.link.api_key, signals.tell)
        except ConversationError as error:
            screen.tell_not_kept(error)
            return
        except AppError as error:
            screen.tell(error)
            return
        screen.show_conversation()
        screen.run_worker(self._follow(answering, signals), exclusive=True, group="answer")

    def link_changed(self, state: LinkState) -> None:
        bar = self._screen.query_one(FailureBar)
        if self.is_wanted and state.is_ready:
            self.ask()
        elif self.is_wanted:
            self._explain_no_model(state)
        elif state.stage in ("gone", "failed"):
            self._server_goes(state)
        elif bar.first_step == RELOAD:
            bar.clear()

    async def restart(self) -> None:
        """The model; and asks again where an answer broke off."""
        self._screen.session.stop()
        self.is_wanted = True
        await self._screen.ktdesk.change_link(lambda link: link.restart()).wait()
        state = self._screen.ktdesk.link_state
        if state is not None and self._screen.is_there:
            self.link_changed(state)

    async def _follow(self, answering: Answering, signals: AnswerSignals) -> None:
        """Pictures of the answer: the latest, a few a second, and at once at the end. None once it is left."""
        screen = self._screen
        screen.refresh_bindings()
        pause = least = 1 / screen.ktdesk.preferences.renders_per_second
        while self._is_seen(answering) and not answering.has_ended:
            begun = time.thread_time()
            signals.look()
            self._draw(answering)
            await signals.wait(pause, 1.0)
            used = time.thread_time() - begun  # what the terminal was sent for it, too
            pause = max(least, min(used / MAX_SHARE, MAX_PAUSE))
        if self._is_seen(answering):
            self._draw(answering)
        await asyncio.to_thread(answering.join, 10.0)
        if self._is_seen(answering):
            self._ended(answering)

    def _is_seen(self, answering: Answering) -> bool:
        """The app has not left, and the conversation is still open."""
        return self._screen.is_there and self._screen.session.answering is answering

    def _draw(self, answering: Answering) -> None:
        message, transcript = self._screen.session.take_answer(), self._screen.query_one(Transcript)
        transcript.change(message, answering.waited_seconds)
        self._show_pace(message, answering)

    def _ended(self, answering: Answering) -> None:
        screen = self._screen
        screen.show_doing("")
        screen.show_context()
        screen.refresh_bindings()
        screen.conversations.refill()
        failure = answering.failure
        if answering.save_error is not None:
            screen.tell_not_kept(answering.save_error)
        elif self._is_stopped_here or isinstance(failure, ServerGoneError) or _is_end_of_server(failure):
            screen.ktdesk.look_at_link()
            self._tell_server_ended()
        elif failure is not None:
            screen.offer(str(failure), again="Ask again", options="Chat options")
        elif screen.session.waits_for_results:
            self.ask_unless_tools_wait()

    def _tell_server_ended(self) -> None:
        state = self._screen.ktdesk.link_state
        why = f" ({state.reason})" if state is not None and state.was_told else ""
        self._screen.offer(
            f"The server ended before the answer did{why}. What came of it is kept.", restart="Start it again"
        )

    def _server_goes(self, state: LinkState) -> None:
        """Where it was stopped here, nobody waits for its answer any more; elsewhere, it may finish it."""
        if not self._screen.has_conversation:
            return
        if not self._screen.session.is_answering:
            if self._screen.query_one(FailureBar).first_step is None:
                self._screen.offer(f"{state.model}: {state.reason}.", **{RELOAD: "Start it again"})
        elif state.was_told and self._screen.ktdesk.link.record is None:
            self._is_stopped_here = True
            self._screen.session.stop()
        elif state.was_told:
            text = f"The server stops: {state.reason}. It goes on with this answer for a few seconds."
            self._screen.offer(text, restart="Start it again")

    def _show_pace(self, message: Message, answering: Answering) -> None:
        measured = message.measured
        if measured.num_answer_tokens:
            rate = f"{measured.decode_tok_s:.1f} tok/s, " if measured.num_answer_tokens > 1 else ""
            self._screen.show_doing(f"{rate}{measured.num_answer_tokens:,} tokens; Escape stops")
        else:
            self._screen.show_doing(f"reads the prompt, {duration(answering.waited_seconds)}; Escape stops")
        self._screen.show_context()

    def _explain_no_model(self, state: LinkState | None) -> None:
        if state is None or state.is_waiting:
            percent = "" if state is None else f" ({state.percent:.0f} %)"
            self._screen.show_doing(f"the answer begins when the model is loaded{percent}; Escape takes it back")
        elif state.stage == "none":
            self._screen.offer(
                "No model is loaded. Your message is kept, and answered when there is one. Enter:", demo="Demo model"
            )
        else:
            self._screen.offer(f"{state.model}: {state.reason}", restart="Start it again", demo="Demo model")


def _is_end_of_server(failure: AppError | None) -> bool:
    return isinstance(failure, AnswerRefusedError) and failure.code == SERVER_STOPS
