"""Chat: what was said, where the next message is written, and the other conversations beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ktdesk.conversations.errors import ConversationError
from ktdesk.conversations.messages import Attachment, Message
from ktdesk.errors import AppError
from ktdesk.tui.chat.answers import RELOAD, Answers
from ktdesk.tui.chat.attached import Attached
from ktdesk.tui.chat.composer import Composer
from ktdesk.tui.chat.context_meter import ContextMeter, num_tokens_of
from ktdesk.tui.chat.conversation_jobs import ConversationJobs
from ktdesk.tui.chat.conversation_list import ConversationList
from ktdesk.tui.chat.message_jobs import MessageJobs
from ktdesk.tui.chat.transcript import Transcript
from ktdesk.tui.chat.welcome import Welcome
from ktdesk.tui.keys import binding
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.place_screen import PlaceScreen
from ktdesk.tui.widgets.failure_bar import FailureBar

if TYPE_CHECKING:
    from ktdesk.model_link import LinkState
    from ktdesk.tui.chat.session import ChatSession

WIDE = 130
"""From here on the conversations are listed from the beginning."""
ANSWERS_NEED = "ConversationList, Transcript, Welcome, FailureBar, ContextMeter"


class ChatScreen(PlaceScreen):
    """What is done with messages, conversations and answers, each has an object of its own for."""

    PLACE = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("chat.stop", "stop"),
        binding("chat.new", "new_chat", priority=True),
        binding("chat.list", "toggle_list", priority=True),
        binding("chat.search", "search", show=False, priority=True),
        binding("chat.attach", "attach", priority=True),
        binding("chat.again", "again", show=False, priority=True),
        binding("chat.reasoning", "toggle_reasoning", show=False, priority=True),
        binding("chat.options", "options", show=False, priority=True),
        binding("chat.export", "export", show=False, priority=True),
        binding("chat.import", "import_chats", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    ChatScreen {
        #body { layout: horizontal; }
        #main { width: 1fr; }
        #title { height: 1; padding: 0 1; text-style: bold; color: $foreground; }
        #main.-empty Transcript, #main.-empty #title { display: none; }
        #main Welcome { display: none; }
        #main.-empty Welcome { display: block; }
        &.-short Composer { max-height: 5; }
        &.-narrow ConversationList { width: 28; }
        &.-low Welcome {
            #welcome-text, #welcome-last { margin: 0 1; }
            Button { height: 1; border: none !important; margin-top: 0; }
        }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._session: ChatSession | None = None
        self._is_left = False
        self.messages = MessageJobs(self)
        self.conversations = ConversationJobs(self)
        self.answers = Answers(self)

    def compose_body(self) -> ComposeResult:
        yield ConversationList()
        with Vertical(id="main", classes="-empty"):
            yield Static(id="title", markup=False)
            yield Transcript(unfolds_reasoning=self.ktdesk.preferences.show_reasoning)
            yield Welcome()
            yield FailureBar()
            yield Attached()
            yield Composer()
            yield ContextMeter()

    def on_mount(self) -> None:
        self.query_one(Composer).focus()
        self.watch(self.app, "link_state", self._link_changed)
        self.query_one(ConversationList).set_class(self.app.size.width >= WIDE, "-shown")
        self.call_after_refresh(self.conversations.refill)
        self.call_after_refresh(self.conversations.show_last)

    def on_unmount(self) -> None:
        """An answer that comes is stopped, and kept as far as it came."""
        self._is_left = True
        if self._session is not None:
            self._session.close()

    @property
    def is_there(self) -> bool:
        """Something can be shown: the app is not about to end, when its parts go one after the other."""
        return not self._is_left and len(self.query(ANSWERS_NEED)) == len(ANSWERS_NEED.split(","))

    @property
    def has_conversation(self) -> bool:
        return self._session is not None and self._session.conversation is not None

    @property
    def session(self) -> ChatSession:
        """Opened when it is first needed."""
        if self._session is None:
            from ktdesk.tui.chat.session import ChatSession

            self._session = ChatSession(self.ktdesk.settings.data_folder)
            if self._session.notice:
                self.tell(self._session.notice)
        return self._session

    # What the user does

    @on(Composer.Sent)
    def _send(self, event: Composer.Sent) -> None:
        attached, edited = self.query_one(Attached), self.messages.edited
        if self.session.is_answering:
            self.warn_of_answer()
        elif not event.text and not attached.items:
            self._take_first_step()
        elif self.kept(lambda: self._keep_question(edited, event.text, attached.items)):
            self.messages.edited = None
            attached.set_items()
            self.query_one(Composer).clear()
            self.show_conversation()
            self.answers.ask_unless_tools_wait()

    def _keep_question(self, edited: Message | None, text: str, attachments: tuple[Attachment, ...]) -> None:
        if edited is not None:
            self.session.edit(edited, text)
        else:
            self.session.ask(text, attachments)

    def action_stop(self) -> None:
        """Stops the answer; where none comes, goes between message and messages."""
        self.answers.is_wanted = False
        composer = self.query_one(Composer)
        if self.session.is_answering:
            self.session.stop()
        elif self.messages.stop_editing():
            pass
        elif composer.has_focus and self.session.conversation is not None:
            self.query_one(Transcript).focus()
        else:
            composer.focus()

    def action_new_chat(self) -> None:
        self._leave_what_is_begun()
        if self.kept(self.session.begin):
            self.show_conversation()
            self.conversations.refill()
        self.query_one(Composer).focus()

    def _leave_what_is_begun(self) -> None:
        """What is wanted or written in one conversation is not meant for the next."""
        self.messages.edited = None
        self.answers.is_wanted = False

    def action_toggle_list(self) -> None:
        self.conversations.show_list()

    def action_search(self) -> None:
        listed = self.query_one(ConversationList)
        listed.add_class("-shown")
        self.conversations.refill()
        listed.focus_search()

    def action_again(self) -> None:
        """Another answer to the last question."""
        conversation = self.session.conversation
        if conversation is not None and conversation.path and not self.session.is_answering:
            self.answers.ask()

    def action_toggle_reasoning(self) -> None:
        transcript = self.query_one(Transcript)
        transcript.fold_all(unfolded=not transcript.unfolds_reasoning)

    @work
    async def action_attach(self) -> None:
        from ktdesk.tui.chat.session import read_attachment
        from ktdesk.tui.widgets.file_question import FileQuestion

        path = await self.app.push_screen_wait(FileQuestion("Attach a file of text"))
        if path is not None:
            try:
                self.query_one(Attached).add(await asyncio.to_thread(read_attachment, path))
            except (AppError, OSError) as error:
                self.tell(error)
            self.show_context()

    @work
    async def action_options(self) -> None:
        from ktdesk.tui.chat.options_dialog import ask_options

        presets = self.ktdesk.preferences.presets
        chosen = await ask_options(self.ktdesk, self.session, presets)
        if chosen is None:
            return
        self.kept(lambda: self.session.describe(chosen.system, chosen.sampling, chosen.tools))
        if chosen.saved_preset:
            self.ktdesk.change_preferences(presets={**presets, chosen.saved_preset: chosen.sampling})

    @work
    async def action_export(self) -> None:
        await self.conversations.export()

    @work
    async def action_import_chats(self) -> None:
        await self.conversations.take_in()

    @on(Composer.LongPaste)
    def _attach_paste(self, event: Composer.LongPaste) -> None:
        self.query_one(Attached).add_paste(event.text)
        self.show_context()

    @on(Composer.Changed)
    def _count_typed(self) -> None:
        self.show_context()

    @on(Transcript.Asked)
    def _do_with_message(self, event: Transcript.Asked) -> None:
        self.messages.do(event)

    @on(ConversationList.Opened)
    def _open(self, event: ConversationList.Opened) -> None:
        self._leave_what_is_begun()
        self.conversations.open(event)

    @on(ConversationList.Searched)
    def _search(self, event: ConversationList.Searched) -> None:
        self.conversations.refill()

    @on(ConversationList.Asked)
    def _do_with_conversation(self, event: ConversationList.Asked) -> None:
        self.conversations.do(event)

    # The model, and what is offered

    def _link_changed(self, state: LinkState | None) -> None:
        if not self.is_there:
            return
        self.query_one(Welcome).link = state
        self.query_one(ContextMeter).context = 0 if state is None else state.context
        if state is not None:
            self.answers.link_changed(state)

    def offer(self, text: str, **steps: str) -> None:
        """What happened, and what can be done: names of `_take_step`, and words."""
        self.query_one(FailureBar).tell(harmless(text), **steps)

    @on(FailureBar.Chosen)
    @on(Welcome.Chosen)
    def _take_step(self, event: FailureBar.Chosen | Welcome.Chosen) -> None:
        steps: dict[str, Callable[[], object]] = {
            "restart": lambda: self.run_worker(self.answers.restart()),
            RELOAD: lambda: self.ktdesk.change_link(lambda link: link.restart()),
            "demo": self.ktdesk.start_demo,
            "setup": lambda: self.ktdesk.action_show_place("setup"),
            "again": self.action_again,
            "options": self.action_options,
            "save": self._save_again,
        }
        self.query_one(FailureBar).clear()
        steps[event.step]()
        self.query_one(Composer).focus()

    def _take_first_step(self) -> None:
        """What is offered first."""
        step = self.query_one(FailureBar).first_step or self.query_one(Welcome).first_step
        if step is not None:
            self.post_message(FailureBar.Chosen(step))

    def warn_of_answer(self) -> None:
        self.notify("An answer still comes: Escape stops it.", severity="warning")

    # What is shown

    def show_conversation(self, *, keep_place: bool = False) -> None:
        transcript = self.query_one(Transcript)
        shown = self.session.shown
        self.query_one("#main").set_class(not shown, "-empty")
        transcript.follows = transcript.follows and keep_place if keep_place else True
        self.query_one(Welcome).last = ""  # of before this conversation, and of one that may be deleted
        transcript.show(shown)
        self.show_title()
        self.show_doing("")
        self.show_context()

    def show_title(self) -> None:
        conversation = self.session.conversation
        text = Content("")
        if conversation is not None:
            text = Content(harmless(conversation.title))
            text += Content.styled("".join(f"  #{harmless(tag)}" for tag in conversation.tags), "$primary not bold")
        self.query_one("#title", Static).update(text)

    def show_doing(self, text: str) -> None:
        self.query_one(ContextMeter).doing = text

    def show_context(self) -> None:
        conversation = self.session.conversation
        letters = len(self.query_one(Composer).text) + self.query_one(Attached).num_letters
        path = [] if conversation is None else conversation.path
        self.query_one(ContextMeter).num_tokens = num_tokens_of(path, letters)

    # What is kept

    def kept(self, job: Callable[[], object]) -> bool:
        """Whether it could be read or written, and gave no False; where not, the user is told."""
        try:
            return job() is not False
        except ConversationError as error:
            self.tell_not_kept(error)
            return False

    def tell_not_kept(self, error: ConversationError) -> None:
        try:
            done = self.session.mend(error)
        except (ConversationError, OSError) as other:
            self.tell(other)
            return
        if done:
            self.tell(error, next_step=done)
            self.show_conversation()
        else:
            self.offer(f"Not saved: {error}. It stays here until you leave.", save="Save again")

    def _save_again(self) -> None:
        answering = self.session.answering
        if answering is not None and self.kept(answering.save_again):
            self.notify("It is saved.")
