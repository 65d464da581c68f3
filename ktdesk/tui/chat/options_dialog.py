"""What a conversation is told first, how its answers are chosen, and which tools the model is told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.containers import Grid, Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, Select, Static, TextArea

from ktdesk.errors import UsageError
from ktdesk.tui.chat.requests import LEAVE_OUT, SETTINGS, STARTING_PRESETS, THINK, setting_of, setting_text, tools_of
from ktdesk.tui.widgets.dialog import Dialog, buttons

if TYPE_CHECKING:
    from ktdesk.tui.app import KtdeskApp
    from ktdesk.tui.chat.session import ChatSession

THINK_CHOICES = [("as the model's template has it", ""), ("think first", "1"), ("do not think", "0")]
LEAVE_OUT_CHOICES = [("say so and stop", "0"), ("leave the oldest messages out", "1")]


class ChatOptions(NamedTuple):
    system: str
    sampling: dict[str, float]
    tools: str
    saved_preset: str = ""
    """A name under which the sampling is to be kept, too."""


class ChatOptionsDialog(Dialog[ChatOptions]):
    AUTO_FOCUS = ""
    HELP = "What is left empty is as the model's file recommends. A preset fills the fields in."
    DEFAULT_CSS = """
    ChatOptionsDialog {
        & > .dialog { width: 90; }
        TextArea { height: 5; border: tall $panel; }
        TextArea:focus { border: tall $primary; }
        Grid { grid-size: 3; grid-gutter: 0 1; height: auto; grid-rows: auto; }
        Grid > Horizontal { height: 3; }
        Grid Label { width: 1fr; height: 3; margin: 0; content-align: left middle; }
        Grid Input { width: 13; }
        .pair { height: 3; }
        .pair Label { width: 26; height: 3; margin: 0; content-align: left middle; }
        .pair Select { width: 1fr; }
        #fields { height: auto; max-height: 100%; }
        #bottom { dock: bottom; height: auto; }
        #bottom .dialog-buttons { margin-top: 0; }
        #problem { color: $error; height: auto; }
        &.-narrow Grid { grid-size: 1; }
        &.-medium Grid { grid-size: 2; }
    }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (70, "-medium"), (96, "-normal")]  # noqa: RUF012  as textual declares it

    def __init__(self, now: ChatOptions, presets: dict[str, dict[str, float]]) -> None:
        super().__init__("Chat options")
        self._now = now
        self._presets = {**STARTING_PRESETS, **presets}

    def on_mount(self) -> None:
        """From its beginning: going to the field would scroll what stands above it away."""
        self.query_one("#system").focus(scroll_visible=False)

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="fields", can_focus=False):
            yield from self._fields()
        with Vertical(id="bottom"):
            yield Static(id="problem", markup=False)
            yield buttons(Button("Cancel", id="cancel"), Button("Take", id="take", variant="primary"))

    def _fields(self) -> ComposeResult:
        yield Label("System prompt: what the model is told first")
        yield _text_field(self._now.system, "system")
        with Horizontal(classes="pair"):
            yield Label("Preset")
            yield Select([(name, name) for name in self._presets], prompt="take one", id="preset")
        with Grid():
            for name, setting in SETTINGS.items():
                with Horizontal():
                    yield Label(setting.title)
                    text = setting_text(name, self._now.sampling.get(name))
                    yield Input(text, id=name, placeholder="model's")
        with Horizontal(classes="pair"):
            yield Label("Reasoning")
            value = {None: "", 1: "1", 0: "0"}[self._now.sampling.get(THINK)]  # type: ignore[index]
            yield Select(THINK_CHOICES, value=value, allow_blank=False, id=THINK)
        with Horizontal(classes="pair"):
            yield Label("Where the context is full")
            leaves_out = "1" if self._now.sampling.get(LEAVE_OUT) else "0"
            yield Select(LEAVE_OUT_CHOICES, value=leaves_out, allow_blank=False, id=LEAVE_OUT)
        yield Label("Tools: functions as JSON. Calls are shown; you write what they gave")
        yield _text_field(self._now.tools, "tools")
        with Horizontal(classes="pair"):
            yield Label("Keep as a preset named")
            yield Input(id="preset-name", placeholder="leave empty to keep none")

    @on(Select.Changed, "#preset")
    def _fill_in(self, event: Select.Changed) -> None:
        preset = self._presets.get(str(event.value))
        if preset is not None:
            for name in SETTINGS:
                self.query_one(f"#{name}", Input).value = setting_text(name, preset.get(name))

    @on(Button.Pressed, "#cancel")
    def _cancel(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#take")
    @on(Input.Submitted)
    def _take(self) -> None:
        try:
            self.dismiss(self._options())
        except UsageError as error:
            self.query_one("#problem", Static).update(str(error))

    def _options(self) -> ChatOptions:
        sampling: dict[str, float] = {}
        for name in SETTINGS:
            value = setting_of(name, self.query_one(f"#{name}", Input).value)
            if value is not None:
                sampling[name] = value
        preset = self.query_one("#preset-name", Input).value.strip()
        think = self.query_one(f"#{THINK}", Select).value
        if think in ("0", "1"):
            sampling[THINK] = int(str(think))
        if self.query_one(f"#{LEAVE_OUT}", Select).value == "1":
            sampling[LEAVE_OUT] = 1
        tools = self.query_one("#tools", TextArea).text
        tools_of(tools)
        return ChatOptions(self.query_one("#system", TextArea).text, sampling, tools, preset)


async def ask_options(app: KtdeskApp, session: ChatSession, presets: dict[str, dict[str, float]]) -> ChatOptions | None:
    """Of the open conversation, or of the next one."""
    now = session.conversation
    if now is None:
        options = ChatOptions(session.draft_system, session.draft_sampling, session.draft_tools)
    else:
        options = ChatOptions(now.system, now.sampling, now.tools)
    return await app.push_screen_wait(ChatOptionsDialog(options, presets))


def _text_field(text: str, name: str) -> TextArea:
    field = TextArea(text, id=name, tab_behavior="focus")
    field.cursor_blink = False
    return field
