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
from ktdesk.conversations.messages import Attachment, Conversation, Message
from ktdesk.errors import AppError, ServerGoneError
from ktdesk.tui.chat.answer_signals import AnswerSignals
from ktdesk.tui.chat.composer import Composer
from ktdesk.tui.chat.context_meter import ContextMeter
from ktdesk.tui.chat.conversation_list import ConversationList
from ktdesk.tui.chat.conversation_questions import ask_import, ask_tags, ask_title, export, import_into, may_delete
from ktdesk.tui.chat.copying import copy
from ktdesk.tui.chat.entry import duration
from ktdesk.tui.chat.transcript import Transcript
from ktdesk.tui.chat.welcome import Welcome
from ktdesk.tui.keys import binding
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.place_screen import PlaceScreen
from ktdesk.tui.widgets.failure_bar import FailureBar

if TYPE_CHECKING:
    from ktdesk.model_link import LinkState
    from ktdesk.tui.chat.session import ChatSession

MAX_SHARE = 0.05
"""Of one core, that pictures of a streaming answer may take: slower ones come less often."""
LETTERS_PER_TOKEN = 4


class ChatScreen(PlaceScreen):
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
        #attached { height: auto; padding: 0 2; color: $primary; display: none; }
        #attached.-shown { display: block; }
        #main.-empty Transcript, #main.-empty #title { display: none; }
        #main Welcome { display: none; }
        #main.-empty Welcome { display: block; }
        &.-short Composer { max-height: 5; }
        &.-narrow ConversationList { width: 28; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._attachments: list[Attachment] = []
        self._edited: Message | None = None
        self._is_wanted = False
        """An answer is asked for, but the model was not ready yet."""

    def compose_body(self) -> ComposeResult:
        yield ConversationList()
        with Vertical(id="main", classes="-empty"):
            yield Static(id="title", markup=False)
            yield Transcript(unfolds_reasoning=self.ktdesk.preferences.show_reasoning)
            yield Welcome()
            yield FailureBar()
            yield Static(id="attached", markup=False)
            yield Composer()
            yield ContextMeter()

    def on_mount(self) -> None:
        self._session: ChatSession | None = None
        self.query_one(Composer).focus()
        self.watch(self.app, "link_state", self._link_changed)
        self.query_one(ConversationList).set_class(self.app.size.width >= 130, "-shown")
        self.call_after_refresh(self._list_conversations)

    def on_unmount(self) -> None:
        if self._session is not None:
            self._session.close()

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
        if self.session.is_answering:
            self.notify("An answer still comes: Escape stops it.", severity="warning")
            return
        if not event.text and not self._attachments:
            self._take_first_step()
            return
        edited, self._edited = self._edited, None
        attachments, self._attachments = self._attachments, []
        if not self._kept(lambda: self._keep_question(edited, event.text, attachments)):
            self._edited, self._attachments = edited, attachments
            return
        self.query_one(Composer).clear()
        self._show_attachments()
        self._show_conversation()
        self._answer_unless_tools_wait()

    def _keep_question(self, edited: Message | None, text: str, attachments: list[Attachment]) -> None:
        if edited is not None:
            self.session.edit(edited, text)
        else:
            self.session.ask(text, attachments)

    def action_stop(self) -> None:
        """Stops the answer; where none comes, goes between message and messages."""
        self._is_wanted = False
        if self.session.is_answering:
            self.session.stop()
        elif self._edited is not None:
            self._edited = None
            self.query_one(Composer).clear()
            self._show_doing("")
        elif self.query_one(Composer).has_focus and self.session.conversation is not None:
            self.query_one(Transcript).focus()
        else:
            self.query_one(Composer).focus()

    def action_new_chat(self) -> None:
        self._edited = None
        if self._kept(self.session.begin):
            self._show_conversation()
            self._list_conversations()
        self.query_one(Composer).focus()

    def action_toggle_list(self) -> None:
        """Shows the conversations, goes there, or hides them."""
        listed = self.query_one(ConversationList)
        if listed.has_class("-shown") and listed.has_focus_within:
            listed.remove_class("-shown")
            self.query_one(Composer).focus()
            return
        listed.add_class("-shown")
        self._list_conversations()
        listed.focus_list()

    def action_search(self) -> None:
        listed = self.query_one(ConversationList)
        listed.add_class("-shown")
        listed.focus_search()

    def action_again(self) -> None:
        """Another answer to the last question."""
        conversation = self.session.conversation
        if conversation is not None and conversation.path and not self.session.is_answering:
            self._answer()

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
                self._attachments.append(await asyncio.to_thread(read_attachment, path))
            except (AppError, OSError) as error:
                self.tell(error)
            self._show_attachments()

    @work
    async def action_options(self) -> None:
        from ktdesk.tui.chat.options_dialog import ChatOptions, ChatOptionsDialog

        session, presets = self.session, self.ktdesk.preferences.presets
        now = session.conversation
        if now is None:
            options = ChatOptions(session.draft_system, session.draft_sampling, session.draft_tools)
        else:
            options = ChatOptions(now.system, now.sampling, now.tools)
        chosen = await self.app.push_screen_wait(ChatOptionsDialog(options, presets))
        if chosen is None:
            return
        self._kept(lambda: session.describe(chosen.system, chosen.sampling, chosen.tools))
        if chosen.saved_preset:
            self.ktdesk.change_preferences(presets={**presets, chosen.saved_preset: chosen.sampling})

    @work
    async def action_export(self) -> None:
        conversation = self.session.conversation
        if conversation is None:
            self.notify("There is no conversation to export yet.", severity="warning")
            return
        try:
            paths = await export(self.ktdesk, conversation)
        except OSError as error:
            self.tell(error)
            return
        if paths:
            self.notify("\n".join(map(str, paths)), title="Exported", markup=False)

    @work
    async def action_import_chats(self) -> None:
        path = await ask_import(self.ktdesk)
        if path is None:
            return
        try:
            count = await asyncio.to_thread(import_into, self.session.store, path)
        except (AppError, OSError) as error:
            self.tell(error, next_step="Nothing of what was there has changed.")
            return
        self.notify(f"{count:,} conversations were imported.")
        self.query_one(ConversationList).add_class("-shown")
        self._list_conversations()

    @on(Composer.LongPaste)
    def _attach_paste(self, event: Composer.LongPaste) -> None:
        number = sum(item.name.startswith("pasted text") for item in self._attachments) + 1
        self._attachments.append(Attachment(f"pasted text {number}", event.text))
        self._show_attachments()

    @on(Composer.Changed)
    def _count_typed(self) -> None:
        self._show_context()

    # Messages

    @on(Transcript.Asked)
    def _do_with_message(self, event: Transcript.Asked) -> None:
        jobs: dict[str, Callable[[], None]] = {
            "copy": lambda: self._copy(event.message.content, "The message"),
            "copy_code": lambda: self._copy_code(event),
            "again": lambda: self._again(event.message),
            "edit": lambda: self._edit(event.message),
            "fork": lambda: self._fork(event.message),
            "older": lambda: self._show_version(event.message, -1),
            "newer": lambda: self._show_version(event.message, 1),
            "delete": lambda: self._cut(event.message),
        }
        if event.what in ("copy", "copy_code") or not self.session.is_answering:
            jobs[event.what]()
        else:
            self.notify("An answer still comes: Escape stops it.", severity="warning")

    def _copy(self, text: str, what: str) -> None:
        said = copy(self.app, text, self.ktdesk.settings.data_folder)
        self.notify(said, title=f"{what} was copied", markup=False)

    def _copy_code(self, event: Transcript.Asked) -> None:
        codes = [event.code] if event.code else self.query_one(Transcript).codes_of(event.message)
        if codes:
            self._copy(codes[-1], "The block of code")
        else:
            self.notify("There is no block of code in this message.", severity="warning")

    def _again(self, message: Message) -> None:
        """For an answer, or for what answers a question."""
        conversation = self.session.conversation
        assert conversation is not None
        if self._kept(lambda: self.session.store.set_tip(conversation, message.message_id)):
            self._answer()

    def _edit(self, message: Message) -> None:
        if message.role == "assistant":
            self.notify("Answers cannot be edited: edit the question, or ask again.", severity="warning")
            return
        self._edited = message
        composer = self.query_one(Composer)
        composer.text = message.content
        composer.move_cursor(composer.document.end)
        composer.focus()
        self._show_doing("editing: Enter sends another version, Escape leaves it")

    def _fork(self, message: Message) -> None:
        if self._kept(lambda: self.session.fork(message)):
            self._show_conversation()
            self._list_conversations()
            self.notify("This is a new conversation; the other is as it was.")

    def _cut(self, message: Message) -> None:
        if self._kept(lambda: self.session.cut(message)):
            self._show_conversation()

    def _show_version(self, message: Message, step: int) -> None:
        if self._kept(lambda: self.session.show_version(message, step)):
            self._show_conversation(keep_place=True)

    # Conversations

    @on(ConversationList.Opened)
    def _open(self, event: ConversationList.Opened) -> None:
        self._edited = None
        if not self._kept(lambda: self.session.open(event.conversation_id)):
            return
        conversation = self.session.conversation
        if conversation is not None and event.message_id in conversation.messages:
            tip = conversation.newest_tip(event.message_id)
            self._kept(lambda: self.session.store.set_tip(conversation, tip))
        self._show_conversation()
        transcript = self.query_one(Transcript)
        if event.message_id:
            transcript.focus()
            self.call_after_refresh(transcript.choose, event.message_id)
        else:
            self.query_one(Composer).focus()
        if self.app.size.width < 100:
            self.query_one(ConversationList).remove_class("-shown")

    @on(ConversationList.Searched)
    def _search(self, event: ConversationList.Searched) -> None:
        self._list_conversations()

    @on(ConversationList.Asked)
    async def _do_with_conversation(self, event: ConversationList.Asked) -> None:
        found: list[Conversation | None] = []
        self._kept(lambda: found.append(self.session.store.load(event.conversation_id)))
        current = self.session.conversation
        is_open = current is not None and current.conversation_id == event.conversation_id
        conversation = current if is_open else (found or [None])[0]
        if conversation is not None:
            {"rename": self._rename, "tags": self._tag, "delete": self._delete}[event.what](conversation)

    @work
    async def _rename(self, conversation: Conversation) -> None:
        title = await ask_title(self.ktdesk, conversation)
        if title is not None:
            conversation.title = title
            self._describe(conversation)

    @work
    async def _tag(self, conversation: Conversation) -> None:
        tags = await ask_tags(self.ktdesk, conversation, self.session.store.tags())
        if tags is not None:
            conversation.tags = tags
            self._describe(conversation)

    def _describe(self, conversation: Conversation) -> None:
        self._kept(lambda: self.session.store.describe(conversation))
        self._show_title()
        self._list_conversations()

    @work
    async def _delete(self, conversation: Conversation) -> None:
        if not await may_delete(self.ktdesk, conversation):
            return
        current = self.session.conversation
        if current is not None and current.conversation_id == conversation.conversation_id:
            self.session.begin()
        self._kept(lambda: self.session.store.delete(conversation.conversation_id))
        self._show_conversation()
        self._list_conversations()

    def _list_conversations(self) -> None:
        listed = self.query_one(ConversationList)
        if not listed.has_class("-shown"):
            return
        sought = listed.sought
        open_id = None if self.session.conversation is None else self.session.conversation.conversation_id

        def fill() -> None:
            from ktdesk.conversations.search import search

            if sought and not sought.startswith("#"):
                listed.show_hits(search(self.session.store, sought))
            else:
                listed.show(self.session.store.summaries(sought[1:] or None), open_id)

        self._kept(fill)

    # Answers

    def _answer_unless_tools_wait(self) -> None:
        waiting = self.session.waits_for_results
        if waiting:
            self._show_doing(f"write what {harmless(waiting[0])} gave")
        else:
            self._answer()

    def _answer(self) -> None:
        """At once, or as soon as the model is ready."""
        state = self.ktdesk.link_state
        if state is None or not state.is_ready:
            self._is_wanted = True
            self._explain_no_model(state)
            return
        self._is_wanted = False
        self.query_one(FailureBar).clear()
        api_key = self.ktdesk.link.api_key
        signals = AnswerSignals(self.session)
        try:
            self.session.answer(state, api_key, signals.tell)
        except ConversationError as error:
            self._tell_not_kept(error)
            return
        except AppError as error:
            self.tell(error)
            return
        self._show_conversation()
        self._follow_answer(signals)

    @work(exclusive=True, group="answer")
    async def _follow_answer(self, signals: AnswerSignals) -> None:
        """Pictures of the answer: the latest, a few a second, and at once at the end."""
        answering, transcript = self.session.answering, self.query_one(Transcript)
        assert answering is not None
        self.refresh_bindings()
        while not signals.has_ended:
            signals.look()
            message = self.session.take_answer()
            transcript.change(message, answering.waited_seconds)
            self._show_pace(message)
            pause = max(1 / self.ktdesk.preferences.renders_per_second, transcript.draw_seconds / MAX_SHARE)
            await signals.wait(pause, 1.0)
        message = self.session.take_answer()
        transcript.change(message)
        await asyncio.to_thread(answering.join, 10.0)
        self._answer_ended(message)

    def _answer_ended(self, message: Message) -> None:
        answering = self.session.answering
        assert answering is not None
        self._show_doing("")
        self._show_context()
        self.refresh_bindings()
        self._list_conversations()
        if answering.save_error is not None:
            self._tell_not_kept(answering.save_error)
        elif isinstance(answering.failure, ServerGoneError):
            self.ktdesk.look_at_link()
            self._offer("The server ended before the answer did. What came of it is kept.", restart="Start it again")
        elif answering.failure is not None:
            self._offer(str(answering.failure), again="Ask again", options="Chat options")
        elif self.session.waits_for_results:
            self._answer_unless_tools_wait()

    def _show_pace(self, message: Message) -> None:
        measured = message.measured
        if measured.num_answer_tokens:
            rate = f"{measured.decode_tok_s:.1f} tok/s, " if measured.num_answer_tokens > 1 else ""
            self._show_doing(f"{rate}{measured.num_answer_tokens:,} tokens; Escape stops")
        elif self.session.answering is not None:
            self._show_doing(f"reads the prompt, {duration(self.session.answering.waited_seconds)}; Escape stops")
        self._show_context()

    # The model

    def _link_changed(self, state: LinkState | None) -> None:
        self.query_one(Welcome).link = state
        meter = self.query_one(ContextMeter)
        meter.context = 0 if state is None else state.context
        if state is None:
            return
        if self._is_wanted and state.is_ready:
            self._answer()
        elif self._is_wanted:
            self._explain_no_model(state)

    def _explain_no_model(self, state: LinkState | None) -> None:
        if state is None or state.is_waiting:
            percent = "" if state is None else f" ({state.percent:.0f} %)"
            self._show_doing(f"the answer begins when the model is loaded{percent}; Escape takes it back")
        elif state.stage == "none":
            self._offer(
                "No model is loaded. Your message is kept, and answered when there is one. Enter:", demo="Demo model"
            )
        else:
            self._offer(f"{state.model}: {state.reason}", restart="Start it again", demo="Demo model")

    def _offer(self, text: str, **steps: str) -> None:
        self.query_one(FailureBar).tell(harmless(text), **steps)

    @on(FailureBar.Chosen)
    @on(Welcome.Chosen)
    def _take_step(self, event: FailureBar.Chosen | Welcome.Chosen) -> None:
        steps: dict[str, Callable[[], object]] = {
            "restart": self._restart,
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

    @work
    async def _restart(self) -> None:
        """And ask again where an answer broke off."""
        self._is_wanted = True
        await self.ktdesk.change_link(lambda link: link.restart()).wait()
        self._link_changed(self.ktdesk.link_state)

    # What is shown

    def _show_conversation(self, *, keep_place: bool = False) -> None:
        transcript = self.query_one(Transcript)
        shown = self.session.shown
        self.query_one("#main").set_class(not shown, "-empty")
        transcript.follows = transcript.follows and keep_place if keep_place else True
        transcript.show(shown)
        self._show_title()
        self._show_doing("")
        self._show_context()

    def _show_title(self) -> None:
        conversation = self.session.conversation
        text = Content("")
        if conversation is not None:
            text = Content(harmless(conversation.title))
            text += Content.styled("".join(f"  #{harmless(tag)}" for tag in conversation.tags), "$primary not bold")
        self.query_one("#title", Static).update(text)

    def _show_attachments(self) -> None:
        shown = self.query_one("#attached", Static)
        names = ", ".join(f"▤ {harmless(item.name)} ({item.num_bytes:,} bytes)" for item in self._attachments)
        shown.update(names)
        shown.set_class(bool(names), "-shown")
        self._show_context()

    def _show_doing(self, text: str) -> None:
        self.query_one(ContextMeter).doing = text

    def _show_context(self) -> None:
        """Counted by the server as far as it was, and guessed for the rest."""
        conversation = self.session.conversation
        path = [] if conversation is None else conversation.path
        letters = len(self.query_one(Composer).text) + sum(len(item.text) for item in self._attachments)
        num_tokens = 0
        for message in reversed(path):
            if message.measured.num_prompt_tokens:
                num_tokens = message.measured.num_tokens
                break
            letters += len(message.content) + sum(len(item.text) for item in message.attachments)
        self.query_one(ContextMeter).num_tokens = num_tokens + letters // LETTERS_PER_TOKEN

    # What is kept

    def _kept(self, job: Callable[[], object]) -> bool:
        """Whether it could be read or written, and gave no False; where not, the user is told."""
        try:
            return job() is not False
        except ConversationError as error:
            self._tell_not_kept(error)
            return False

    def _tell_not_kept(self, error: ConversationError) -> None:
        try:
            done = self.session.mend(error)
        except (ConversationError, OSError) as other:
            self.tell(other)
            return
        if done:
            self.tell(error, next_step=done)
            self._show_conversation()
        else:
            self._offer(f"Not saved: {error}. It stays here until you leave.", save="Save again")

    def _save_again(self) -> None:
        answering = self.session.answering
        if answering is not None and self._kept(answering.save_again):
            self.notify("It is saved.")
