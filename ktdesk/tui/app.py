"""The app: its places, colours and keys, and the link to the model. What a place does is in its screen."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, Monochrome, NoColor
from textual.reactive import reactive
from textual.screen import Screen

from ktdesk.settings import Settings
from ktdesk.tui.keys import KEYS, binding
from ktdesk.tui.last_words import LastWords
from ktdesk.tui.places import FIRST_PLACE, PLACES
from ktdesk.tui.preferences import Preferences, PreferencesFile
from ktdesk.tui.themes import THEMES, default_theme

if TYPE_CHECKING:
    from pathlib import Path

    from ktdesk.model_link import LinkState, ModelLink

SECONDS_BETWEEN_LOOKS = 2.0
SECONDS_BETWEEN_LOADING_LOOKS = 0.25
FAILURE_SECONDS = 15.0
SECONDS_TO_CLOSE = 0.1
"""For the palette, before a picture is taken of what is behind it."""
WITHOUT_COLOURS, GREYS = NoColor(), Monochrome()
MakeLink = Callable[[Settings], "ModelLink"]


class KtdeskApp(App[None]):
    """Runs until the user leaves."""

    TITLE = "ktdesk"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = KEYS["app.palette"].key
    MODES: ClassVar[dict[str, Callable[[], Screen[Any]]]] = {place.name: place.make for place in PLACES}  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("app.help", "toggle_help", priority=True),
        *(binding(place.key_name, f"show_place('{place.name}')", show=False, priority=True) for place in PLACES),
        Binding("ctrl+p", "command_palette", "Commands", priority=True, id="app.palette"),
        binding("app.quit", "quit", show=False, priority=True),
    ]

    link_state: reactive[LinkState | None] = reactive(None)
    """How the model is; None before anybody looked."""
    demo_words: reactive[str] = reactive("")
    """How far the demo model is, while it is made."""
    bound_keys: reactive[dict[str, str]] = reactive(dict)
    """What the user bound anew, by the name of the key."""

    def __init__(self, settings: Settings, make_link: MakeLink | None = None, first_place: str | None = None) -> None:
        """first_place: None: the setup for who never had a model here, Chat for others."""
        self.settings = settings
        self._make_link = make_link
        self._link: ModelLink | None = None
        self._looking = asyncio.Event()
        self._file = PreferencesFile(settings.data_folder)
        self.DEFAULT_MODE = first_place or ("setup" if self._is_new else FIRST_PLACE)  # type: ignore[misc]
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self._wanted_theme()
        self.bound_keys = dict(self.preferences.keys)

    @property
    def _is_new(self) -> bool:
        """Nothing was loaded or said here yet."""
        return self.preferences.last_model is None and not self.has_conversations

    @property
    def has_conversations(self) -> bool:
        """Some were kept; to look is quicker than to open them."""
        return (self.settings.data_folder / "conversations.db").exists()

    @property
    def preferences(self) -> Preferences:
        return self._file.now

    @property
    def link(self) -> ModelLink:
        """To the model. Made when it is first needed: what it imports must not keep the first picture waiting."""
        if self._link is None:
            if self._make_link is None:
                from ktdesk.model_link import ModelLink

                self._link = ModelLink(self.settings)
            else:
                self._link = self._make_link(self.settings)
        return self._link

    def change_preferences(self, **values: Any) -> None:
        try:
            self._file.change(**values)
        except OSError as error:
            self.tell_failure(error, next_step="They count until you leave.")
        if "keys" in values:
            self.bound_keys = dict(self.preferences.keys)

    def on_mount(self) -> None:
        self._heed_signals()

    def on_ready(self) -> None:
        """The first picture is drawn: before it, there may be no place for notices yet, and they are lost."""
        self._watch_link()
        if self._file.error is not None:
            self.tell_failure(self._file.error, next_step="Until it is mended, defaults count and nothing is saved.")
        if not self.is_headless:  # the terminal may be gone by now
            self.set_interval(SECONDS_BETWEEN_LOOKS, self._leave_without_terminal)

    @work(exclusive=True, group="link")
    async def _watch_link(self) -> None:
        """Looks how the model is, for as long as the app runs."""
        await self._in_thread(self._first_link)
        while True:
            state = self.link_state
            is_waiting = state is not None and state.is_waiting
            self._looking.clear()
            with suppress(asyncio.TimeoutError):
                seconds = SECONDS_BETWEEN_LOADING_LOOKS if is_waiting else SECONDS_BETWEEN_LOOKS
                await asyncio.wait_for(self._looking.wait(), seconds)
            await self._in_thread(lambda: self.link.look())

    def _first_link(self) -> LinkState:
        """A server that runs, or else the model of last time."""
        from pathlib import Path

        from ktdesk.options import options_with

        state = self.link.attach_if_any()
        path = self.preferences.last_model
        if state.stage == "none" and path and self.preferences.load_last_model and Path(path).is_file():
            return self.link.start(Path(path), options_with(self.preferences.last_options))
        return state

    async def _in_thread(self, job: Callable[[], LinkState]) -> None:
        try:
            self.link_state = await asyncio.to_thread(job)
        except OSError as error:
            self.tell_failure(error)

    @work(group="link-change")
    async def change_link(self, job: Callable[[ModelLink], LinkState]) -> None:
        """Does something that blocks with the link, such as `lambda link: link.start(path)`."""
        waiting = asyncio.create_task(self._in_thread(lambda: job(self.link)))
        await asyncio.sleep(0)
        while not waiting.done():
            self.link_state = self.link.state
            await asyncio.wait({waiting}, timeout=SECONDS_BETWEEN_LOADING_LOOKS)
        self._looking.set()

    def look_at_link(self) -> None:
        """Now, rather than when it is time."""
        self._looking.set()

    @work(exclusive=True, group="demo")
    async def start_demo(self) -> None:
        """Makes the demo model if it is not there, and loads it."""
        from ktdesk.model_paths import demo_path

        self.notify("It is made where it is not there yet: about 90 MB are fetched, once.", title="Demo model")
        report = LastWords()
        making = asyncio.create_task(asyncio.to_thread(lambda: demo_path(self.settings, report=report)))
        while not making.done():
            self.demo_words = report.words
            await asyncio.wait({making}, timeout=SECONDS_BETWEEN_LOADING_LOOKS)
        self.demo_words = ""
        try:
            path = making.result()
        except Exception as error:
            self.tell_failure(error)
            return
        self.change_link(lambda link: link.start(path))

    def action_open_address(self, address: str) -> None:
        """A link of an answer, which may lead anywhere: so it was shown whole."""
        self.open_url(address)

    def watch_bound_keys(self, keys: dict[str, str]) -> None:
        self.set_keymap({name: key for name, key in keys.items() if name in KEYS})

    def watch_link_state(self, old: LinkState | None, new: LinkState | None) -> None:
        """The model that was ready last is loaded next time."""
        if new is None or not new.is_ready:
            return
        from ktdesk.options import changed_options  # it is loaded: something was started with options

        now = {"last_model": new.path, "last_options": changed_options(self.link.options)}
        if any(getattr(self.preferences, name) != value for name, value in now.items()):
            self.change_preferences(**now)

    def tell_failure(self, error: BaseException | str, *, next_step: str = "") -> None:
        """Cause and next step, in words."""
        if isinstance(error, str):
            text = error
        else:
            from ktdesk.failures import describe

            text = describe(error)
        message = f"{text}\n{next_step}" if next_step else text
        self.notify(message, title="That did not work", severity="error", timeout=FAILURE_SECONDS, markup=False)

    def action_show_place(self, name: str) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()  # what was asked there is left open no longer
        self.switch_mode(name)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """None of the app's own where a dialog waits for a key, whichever it is."""
        return not (self.screen_stack and getattr(self.screen, "TAKES_EVERY_KEY", False))

    def action_toggle_help(self) -> None:
        """For what has the focus."""
        from ktdesk.tui.widgets.help_dialog import HelpDialog, help_text, key_groups

        if isinstance(self.screen, HelpDialog):
            self.screen.dismiss()
            return
        self.push_screen(HelpDialog(help_text(self.screen.focused), key_groups(self.screen)))

    def save_picture(self) -> None:
        """Of the screen, where other programs put what they fetch, or else in the data folder."""
        try:
            path = self.save_screenshot(path=str(_pictures_folder(self.settings)))
        except OSError as error:
            self.tell_failure(error)
            return
        self.notify(path, title="The picture is saved", markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """What every place offers. The keys that the focus has are offered beside these."""
        for place in PLACES:
            yield SystemCommand(
                place.title, f"Go to {place.title}", lambda name=place.name: self.action_show_place(name)
            )
        for _, shown, enabled, _ in screen.active_bindings.values():
            if enabled and shown.description and shown.id and not shown.id.startswith("app."):
                yield SystemCommand(
                    shown.description,
                    f"{KEYS[shown.id].group}: {self.get_key_display(shown)}" if shown.id in KEYS else "",
                    partial(self.run_action_on_focus, shown.action),
                )
        for command in super().get_system_commands(screen):
            if command.title not in ("Keys", "Screenshot"):
                yield command
        yield SystemCommand("Help", "What the focused part does, and all keys", self.action_toggle_help)
        yield SystemCommand(
            "Screenshot",
            "Save what is shown as a picture (SVG)",
            lambda: self.set_timer(SECONDS_TO_CLOSE, self.save_picture),
        )

    def run_action_on_focus(self, action: str) -> None:
        """As if its key had been pressed."""
        for node, shown, enabled, _ in self.screen.active_bindings.values():
            if shown.action == action and enabled:
                self.call_later(self.run_action, action, node)
                return

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What takes the colours away suits the theme of now: textual chooses it before it knows which that is, and
        the terminal's own colours would come out black on black."""
        fits = WITHOUT_COLOURS if self.native_ansi_color else GREYS
        return [fits if isinstance(each, (NoColor, Monochrome)) else each for each in super().get_line_filters()]

    def watch_theme(self, old: str, new: str) -> None:
        if old != new and self.is_running and new != (self.preferences.theme or default_theme()):
            self.change_preferences(theme=new)

    def _wanted_theme(self) -> str:
        import os

        wanted = os.environ.get("TEXTUAL_THEME") or self.preferences.theme or default_theme()
        return wanted if wanted in self.available_themes else default_theme()

    def _heed_signals(self) -> None:
        """Being told to end, the terminal is left as it was found."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, as in tests
                loop.add_signal_handler(number, self.exit, None, 128 + number)

    def _leave_without_terminal(self) -> None:
        """A terminal that goes away without a signal leaves an input behind that is always at its end."""
        if not _has_terminal():
            self.exit(None, 128 + signal.SIGHUP)

    def _fatal_error(self) -> None:
        """Instead of textual's own page: the command line tells the error in a line, and in full with --debug."""
        self._close_messages_no_wait()


def _pictures_folder(settings: Settings) -> Path:
    from platformdirs import user_downloads_path

    downloads = user_downloads_path()
    if downloads.is_dir():
        return downloads
    folder = settings.data_folder / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _has_terminal() -> bool:
    try:
        return sys.__stdin__ is not None and sys.__stdin__.isatty()
    except ValueError:  # closed
        return False
