"""What the user is asked about a conversation. Each answers None or False where the question was left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ktdesk.amounts import counted
from ktdesk.conversations.messages import Conversation
from ktdesk.tui.markdown.harmless import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ktdesk.conversations.store import ConversationStore
    from ktdesk.tui.app import KtdeskApp


async def ask_title(app: KtdeskApp, conversation: Conversation) -> str | None:
    from ktdesk.tui.widgets.dialog import TextQuestion

    title = await app.push_screen_wait(TextQuestion("Rename", "Title", conversation.title))
    return (title or "").strip() or None


async def ask_tags(app: KtdeskApp, conversation: Conversation, known: Sequence[str]) -> tuple[str, ...] | None:
    from ktdesk.tui.widgets.dialog import TextQuestion

    there = ", ".join(f"#{tag}" for tag in known) or "none yet"
    question = TextQuestion("Tags", f"Words with spaces between. There are: {there}", " ".join(conversation.tags))
    text = await app.push_screen_wait(question)
    if text is None:
        return None
    return tuple(sorted({word.lstrip("#") for word in text.split() if word.lstrip("#")}))


async def may_delete(app: KtdeskApp, conversation: Conversation) -> bool:
    from ktdesk.tui.widgets.dialog import Confirmation

    count = counted(len(conversation.messages), "message")
    text = f"“{harmless(conversation.title)}” and its {count} cannot be brought back."
    is_wanted = await app.push_screen_wait(Confirmation("Delete a conversation", text, "Delete"))
    return bool(is_wanted)


async def export(app: KtdeskApp, conversation: Conversation) -> list[Path]:
    """The files that were written; none where no folder was named. OSError where they cannot be."""
    from ktdesk.conversations.exporting import file_name, to_json, to_markdown, write_new
    from ktdesk.tui.widgets.dialog import TextQuestion

    label = "Folder. Markdown, for people, and JSON, to be imported again, are written there"
    text = await app.push_screen_wait(TextQuestion("Export", label, str(Path.cwd())))
    if not text:
        return []
    folder = Path(text).expanduser()
    return [
        write_new(folder, file_name(conversation, "md"), to_markdown(conversation)),
        write_new(folder, file_name(conversation, "json"), to_json([conversation])),
    ]


async def ask_import(app: KtdeskApp) -> Path | None:
    from ktdesk.tui.widgets.file_question import FileQuestion

    return await app.push_screen_wait(
        FileQuestion("Import conversations of ChatGPT, Open WebUI or ktdesk", (".json", ".zip"))
    )


def import_into(store: ConversationStore, path: Path) -> int:
    """How many came. Errors as of `read_conversations`."""
    from ktdesk.conversations.importing import read_conversations

    found = read_conversations(path)
    for conversation in found:
        store.insert(conversation)
    return len(found)
