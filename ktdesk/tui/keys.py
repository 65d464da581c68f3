"""Every key of the app: its name, the key, and what it does. Users bind them anew by name.

Safe over SSH and in tmux and screen: no ctrl+a, ctrl+b, ctrl+z, no alt and no keys that need a newer protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from textual.binding import Binding


class Key(NamedTuple):
    key: str
    """Several are separated by commas."""
    what: str
    """For the footer, the palette and help."""
    group: str
    """Where it counts."""
    more: str = ""
    """What it does, in help, where `what` is too short to tell."""


EVERYWHERE = "Everywhere"
CHAT = "Chat"
WRITING = "Writing"
MESSAGES = "Messages"
CONVERSATIONS = "Conversations"
SERVER = "Server"
SERVERS = "Other servers"

KEYS: dict[str, Key] = {
    "app.help": Key("f1", "Help", EVERYWHERE, "Explains what has the focus"),
    "app.chat": Key("f2", "Chat", EVERYWHERE),
    "app.setup": Key("f3", "Setup", EVERYWHERE),
    "app.monitor": Key("f5", "Monitor", EVERYWHERE),
    "app.server": Key("f6", "Server", EVERYWHERE),
    "app.settings": Key("f7", "Settings", EVERYWHERE),
    "app.palette": Key("ctrl+p", "Commands", EVERYWHERE, "All commands, by name"),
    "app.quit": Key("ctrl+q", "Quit", EVERYWHERE, "Leaves"),
    "chat.send": Key("enter", "Send", WRITING),
    "chat.newline": Key("ctrl+j,shift+enter", "New line", WRITING),
    "chat.stop": Key("escape", "Stop, switch", CHAT, "Stops an answer; else goes to the messages and back"),
    "chat.new": Key("ctrl+n", "New chat", CHAT, "Begins a new chat"),
    "chat.list": Key("ctrl+l", "Chats", CHAT, "Shows or hides the other chats"),
    "chat.search": Key("ctrl+g", "Search", CHAT, "Searches all messages, or #tag"),
    "chat.attach": Key("ctrl+o", "Attach", CHAT, "Attaches a file of text"),
    "chat.again": Key("ctrl+r", "Ask again", CHAT, "Asks the last question again"),
    "chat.reasoning": Key("ctrl+t", "Reasoning", CHAT, "Folds and unfolds reasoning"),
    "chat.options": Key("f8", "Chat options", CHAT, "System prompt, sampling, presets, tools"),
    "chat.export": Key("ctrl+s", "Export", CHAT, "Writes this chat to files: Markdown and JSON"),
    "chat.import": Key("f9", "Import chats", CHAT, "Takes in chats of other programs"),
    "message.above": Key("up", "Message above", MESSAGES, "Chooses the message above"),
    "message.below": Key("down", "Message below", MESSAGES, "Chooses the message below"),
    "message.copy": Key("c", "Copy", MESSAGES, "Copies the message"),
    "message.copy_code": Key("b", "Copy code", MESSAGES, "Copies its last block of code"),
    "message.again": Key("r", "Ask again", MESSAGES, "Asks again"),
    "message.edit": Key("e", "Edit", MESSAGES, "Edits the question"),
    "message.fork": Key("f", "Fork", MESSAGES, "A new chat that begins as this one"),
    "message.fold": Key("space", "Fold", MESSAGES, "Folds or unfolds"),
    "message.older": Key("left", "Older version", MESSAGES),
    "message.newer": Key("right", "Newer version", MESSAGES),
    "message.delete": Key("delete", "Delete", MESSAGES, "Ends the chat before it; it stays as a version"),
    "conversation.rename": Key("r", "Rename", CONVERSATIONS),
    "conversation.tags": Key("t", "Tags", CONVERSATIONS),
    "conversation.delete": Key("delete", "Delete", CONVERSATIONS),
    "server.stop": Key("s", "Stop", SERVER),
    "server.start": Key("enter", "Start again", SERVER),
    "server.copy": Key("c", "Copy the lines", SERVER, "Copies the lines that connect a client"),
    "server.next": Key("n", "Next client", SERVER, "Shows the lines of the next client"),
    "server.options": Key("o", "Other options", SERVER, "Loads the model with other options"),
    "servers.stop": Key("delete", "Stop it", SERVERS),
    "setup.back": Key("escape", "Back", "Setup", "Back by a step"),
    "setup.next": Key("enter", "Go ahead", "Setup"),
    "settings.rebind": Key("enter", "Bind anew", "Settings", "Binds the line to another key"),
    "settings.reset": Key("delete", "As it was", "Settings", "Gives it its own key back"),
}
"""By name. A screen adds its own here, and takes them with `binding`."""


def binding(name: str, action: str, *, show: bool = True, priority: bool = False) -> Binding:
    """Of a key of the table. priority: before the focused widget's own keys."""
    key = KEYS[name]
    return Binding(key.key, action, key.what, show=show, priority=priority, id=name)


def clashes(bound: Mapping[str, str], name: str, key: str) -> list[str]:
    """Names of other keys that would be pressed by this one, too. bound: what users bound anew."""
    group = KEYS[name].group
    found = []
    for other, entry in KEYS.items():
        keys = bound.get(other, entry.key).split(",")
        if other != name and entry.group in (group, EVERYWHERE) and key in keys:
            found.append(other)
    return found
