"""The app around its places: going there, keys, colours, settings, failures, and terminals that are too small."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
import yaml
from driving import FakeLink, drive, make_app, shown, until
from textual.pilot import Pilot
from textual.widgets import DataTable, Select
from textual.widgets._footer import FooterKey
from textual.widgets._toast import Toast

from ktdesk.model_link import LinkState
from ktdesk.options import EngineOptions
from ktdesk.settings import Settings
from ktdesk.tui.app import KtdeskApp
from ktdesk.tui.chat.composer import Composer
from ktdesk.tui.keys import KEYS, clashes
from ktdesk.tui.place_screen import NO_ROOM
from ktdesk.tui.places import PLACES
from ktdesk.tui.preferences import Preferences, PreferencesError, PreferencesFile, parse
from ktdesk.tui.running import run_app
from ktdesk.tui.widgets.help_dialog import GENERAL, HelpDialog, key_groups
from ktdesk.tui.widgets.place_bar import PlaceBar

READY = LinkState("ready", "smolmoe", "http://127.0.0.1:1", "/models/smolmoe.gguf", 100.0, context=8192)


def home() -> Path:
    return Path(os.environ["KTDESK_HOME"])


def test_every_place_has_a_key_that_goes_there_and_a_title_at_the_top() -> None:
    async def script(pilot: Pilot[None]) -> None:
        for place in PLACES:
            await pilot.press(KEYS[place.key_name].key)
            await until(pilot, lambda place=place: pilot.app.current_mode == place.name)  # type: ignore[misc]
            assert place.title in shown(pilot.app).splitlines()[0]

    drive(make_app(), script, (140, 40))


def test_the_bar_says_how_the_model_is() -> None:
    link = FakeLink(LinkState("loading", "smolmoe", percent=43.0))

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "smolmoe loads 43 %" in shown(pilot.app))
        link.state = READY
        await until(pilot, lambda: "● smolmoe" in shown(pilot.app))

    drive(make_app(link), script)
    assert PreferencesFile(home()).now.last_model == READY.path


def test_the_last_model_is_loaded_again_unless_the_user_said_no(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.touch()
    for loads in (True, False):
        PreferencesFile(home()).change(last_model=str(model), load_last_model=loads)
        link = FakeLink()

        async def script(pilot: Pilot[None], link: FakeLink = link, loads: bool = loads) -> None:
            await until(pilot, lambda: pilot.app.link_state is not None)  # type: ignore[attr-defined]
            assert link.done == ([f"start {model}"] if loads else [])

        drive(make_app(link), script)


def test_the_last_model_comes_back_with_the_options_that_it_was_started_with(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.touch()
    link = FakeLink(READY)
    link.options = EngineOptions(context=4096)

    async def ready(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: PreferencesFile(home()).now.last_options == {"context": 4096})

    drive(make_app(link), ready)
    PreferencesFile(home()).change(last_model=str(model))
    again = FakeLink()

    async def next_time(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: again.done)

    drive(make_app(again), next_time)
    assert again.options == link.options


def test_what_had_the_focus_has_it_again_once_the_window_has_room() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(pilot.app.focused, Composer))
        await pilot.press("a")
        await pilot.resize_terminal(20, 5)
        await until(pilot, lambda: pilot.app.focused is None)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: isinstance(pilot.app.focused, Composer))
        await pilot.press("b")
        assert pilot.app.screen.query_one(Composer).text == "ab"

    drive(make_app(FakeLink(READY)), script)


def test_help_and_the_palette_open_by_key_and_close_again() -> None:
    async def script(pilot: Pilot[None]) -> None:
        for closes in ("f1", "escape"):
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(pilot.app.screen, HelpDialog))
            await pilot.press(closes)
            await until(pilot, lambda: isinstance(pilot.app.focused, Composer))
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "Search for commands" in shown(pilot.app))
        await pilot.press(*"settings")
        await until(pilot, lambda: "Go to Settings" in shown(pilot.app) and "Ask again" not in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.current_mode == "settings")

    drive(make_app(), script)


def test_help_explains_what_has_the_focus_and_scrolls_to_its_last_key() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(pilot.app.focused, Composer))
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpDialog) and pilot.app.focused is not None)
        await until(pilot, lambda: "New line" in shown(pilot.app))
        await pilot.press("end")
        await until(pilot, lambda: "Undo" in shown(pilot.app) and "New line" not in shown(pilot.app))

    drive(make_app(FakeLink(READY)), script)


def test_help_lists_our_keys_first_and_the_text_fields_own_last_in_our_words() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(pilot.app.focused, Composer))
        groups = key_groups(pilot.app.screen)
        assert list(groups) == ["Writing", "Chat", "Everywhere", "In the text field"]
        assert groups["Everywhere"][0] == ("f1", "Explains what has the focus")
        words = " ".join(what for keys in groups.values() for _, what in keys)
        assert "Cursor" not in words
        assert "Focus" not in words

    drive(make_app(FakeLink(READY)), script)


def test_every_key_that_help_tells_of_text_fields_and_lists_is_one_of_theirs() -> None:
    for kind, _, keys in GENERAL:
        bound = {key for binding in kind.BINDINGS for key in binding.key.split(",")}  # type: ignore[union-attr]
        told = {key for shown, _ in keys for key in shown.split(", ")} - {"arrows", "shift and these"}
        assert told <= bound | {"ctrl+v"}


def test_a_picture_is_saved_where_there_is_no_folder_for_downloads_and_its_place_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("XDG_DOWNLOAD_DIR", raising=False)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "Search for commands" in shown(pilot.app))
        await pilot.press(*"screenshot")
        await until(pilot, lambda: "Save what is shown" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: "The picture is saved" in shown(pilot.app))

    drive(make_app(), script, (140, 40))
    (picture,) = (home() / "pictures").glob("ktdesk*.svg")
    assert "Search for commands" not in picture.read_text()


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_a_notice_covers_neither_what_is_written_nor_the_buttons(size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(pilot.app.focused, Composer))
        pilot.app.tell_failure("one thing after the other went wrong here", next_step="Try again.")  # type: ignore[attr-defined]
        await until(pilot, lambda: pilot.app.screen.query(Toast))
        toast, composer = pilot.app.screen.query_one(Toast), pilot.app.screen.query_one(Composer)
        await until(pilot, lambda: toast.region.height > 2)
        assert not toast.region.overlaps(composer.region)
        assert not toast.region.overlaps(pilot.app.screen.query_one(PlaceBar).region)

    drive(make_app(FakeLink(READY)), script, size)


@pytest.mark.parametrize("width", [40, 47, 60])
def test_a_key_at_the_bottom_is_whole_or_left_out(width: int) -> None:
    def keys(pilot: Pilot[None]) -> list[FooterKey]:
        return [key for key in pilot.app.screen.query(FooterKey) if key.region.width]

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(keys(pilot)))
        await pilot.pause()
        assert all(key.region.right <= width for key in keys(pilot))
        few = len(keys(pilot))
        await pilot.resize_terminal(200, 12)
        await until(pilot, lambda: len(keys(pilot)) > few)

    drive(make_app(), script, (width, 12))


@pytest.mark.parametrize("size", [(20, 5), (1, 1), (39, 24), (80, 9)])
def test_a_terminal_that_is_too_small_is_told_and_growing_mends_it(size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: size == (1, 1) or NO_ROOM[:10] in " ".join(shown(pilot.app).split()))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "F2 Chat" in shown(pilot.app))
        assert "needs" not in shown(pilot.app)

    drive(make_app(), script, size)


def test_a_key_is_bound_anew_in_the_settings_and_given_back() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f7")
        await until(pilot, lambda: pilot.app.screen.query(DataTable))
        table = pilot.app.screen.query_one(DataTable)
        table.focus()
        table.move_cursor(row=list(KEYS).index("app.settings"))
        await pilot.press("enter")
        await until(pilot, lambda: "Press the key" in shown(pilot.app))
        await pilot.press("f12")
        await until(pilot, lambda: "F12 Settings" in shown(pilot.app))
        await pilot.press("f2")
        await until(pilot, lambda: pilot.app.current_mode == "chat")
        await pilot.press("f7")
        assert pilot.app.current_mode == "chat"
        await pilot.press("f12")
        await until(pilot, lambda: pilot.app.current_mode == "settings")
        assert yaml.safe_load((home() / "app.yaml").read_text()) == {"keys": {"app.settings": "f12"}}
        await pilot.press("delete")
        await until(pilot, lambda: "F7 Settings" in shown(pilot.app))

    drive(make_app(), script, (140, 40))
    assert PreferencesFile(home()).now == Preferences()


def test_a_key_that_is_taken_is_refused_by_name() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f7")
        await until(pilot, lambda: pilot.app.screen.query(DataTable))
        table = pilot.app.screen.query_one(DataTable)
        table.focus()
        table.move_cursor(row=list(KEYS).index("app.settings"))
        await pilot.press("enter")
        await until(pilot, lambda: "Press the key" in shown(pilot.app))
        await pilot.press("f1")
        await until(pilot, lambda: "f1 is taken: Help" in shown(pilot.app))

    drive(make_app(), script, (140, 40))
    assert PreferencesFile(home()).now == Preferences()


def test_no_two_keys_of_a_place_are_the_same() -> None:
    for name, entry in KEYS.items():
        for key in entry.key.split(","):
            assert not clashes({}, name, key), name


def test_colours_are_chosen_and_kept() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f7")
        await until(pilot, lambda: pilot.app.screen.query(Select))
        pilot.app.screen.query_one(Select).value = "ktdesk-light"
        await until(pilot, lambda: pilot.app.theme == "ktdesk-light")
        await pilot.pause()

    drive(make_app(), script)
    assert make_app().theme == "ktdesk-light"


def test_a_terminal_of_few_colours_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLORTERM")
    monkeypatch.setenv("TERM", "linux")
    assert make_app().theme == "ansi-dark"
    monkeypatch.setenv("TERM", "xterm-256color")
    assert make_app().theme == "ktdesk-dark"


def test_preferences_that_make_no_sense_are_told_and_left_alone() -> None:
    (home() / "app.yaml").write_text("theme: 3\n")

    app, told = make_app(), []
    app.notify = lambda message, **_: told.append(message)  # type: ignore[method-assign, misc, assignment]

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: told)
        app.change_preferences(theme="ktdesk-light")

    drive(app, script)
    assert "Until it is mended, defaults count and nothing is saved." in told[0]
    assert (home() / "app.yaml").read_text() == "theme: 3\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("colour: red", "no setting 'colour'"),
        ("- a", "must hold names and values"),
        ("keys: {app.chat: 3}", "keys.app.chat must be a key"),
        ("load_last_model: 1", "load_last_model must be true or false"),
        ("renders_per_second: 99", "must be from 1 to 30"),
        ("renders_per_second: true", "must be a number"),
        ("presets: {a: {temperature: hot}}", "presets.a must be names and numbers"),
        ("{", "is no YAML"),
    ],
)
def test_each_mistake_in_the_preferences_is_named(text: str, told: str) -> None:
    with pytest.raises(PreferencesError, match=told):
        parse(text, "app.yaml")


def test_preferences_survive_their_way_through_the_file() -> None:
    preset = {"exact": {"temperature": 0.0, "top_k": 1}}
    PreferencesFile(home()).change(theme="ansi-dark", keys={"app.chat": "f9"}, presets=preset, renders_per_second=2.5)
    assert PreferencesFile(home()).now == Preferences(
        "ansi-dark", {"app.chat": "f9"}, presets=preset, renders_per_second=2.5
    )


def test_the_thread_that_reads_keys_ends_also_where_the_terminal_can_be_written_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Driver:
        exit_event = threading.Event()

    def run(app: KtdeskApp) -> None:
        app._driver = Driver()  # type: ignore[assignment]
        raise OSError(errno.EIO, "the terminal is gone")

    monkeypatch.setattr(KtdeskApp, "run", run)
    monkeypatch.setattr("ktdesk.tui.running._check_terminal", lambda: None)
    with pytest.raises(OSError, match="the terminal is gone"):
        run_app(Settings(home=str(home())))
    assert Driver.exit_event.is_set()


def test_what_ends_the_app_by_mistake_is_raised_and_not_painted() -> None:
    async def script(pilot: Pilot[None]) -> None:
        def fail() -> None:
            raise ZeroDivisionError("on purpose")

        pilot.app.call_later(fail)
        await pilot.pause(0.2)

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        drive(make_app(), script)
