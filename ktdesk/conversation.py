"""A conversation that goes on: who said what. Knows no terminal."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Conversation:
    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)
    """Messages of user and assistant, by turns."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """As the chat template wants them."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *self.turns]

    def ask(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        self.turns.append({"role": "assistant", "content": text})

    def take_back(self) -> str | None:
        """Forgets the last question and what was answered to it; None where there is none."""
        while self.turns:
            turn = self.turns.pop()
            if turn["role"] == "user":
                return turn["content"]
        return None

    def reset(self) -> None:
        """Forgets all but the system message."""
        self.turns.clear()
