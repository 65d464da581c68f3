"""Whether there is memory for a model, asked before it is loaded: a refusal is better than an end by the system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from ktdesk.server.opening import OpenSettings
from ktdesk_engine.errors import EngineError
from ktdesk_wizard.plan.model import PlannedModel, model_of_file
from ktdesk_wizard.plan.plan import MEMORY, Plan
from ktdesk_wizard.plan.planner import make_plan
from ktdesk_wizard.plan.wishes import Wishes, engine_abilities
from ktdesk_wizard.probe.fact import derived
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.probe import probe


class MemoryGuard:
    """Plans a model as `ktdesk plan` does, in the memory that this process may have."""

    def __init__(self, how: OpenSettings, facts: Callable[[Path], MachineFacts] = probe) -> None:
        self._how = how
        self._facts = facts
        self._needed_bytes: dict[Path, int] = {}
        """Of what was let in."""

    def problem(self, path: Path, staying: Sequence[Path]) -> str | None:
        """Why it does not fit beside those that stay; None where it does. What cannot be planned is let in: whoever
        opens it knows why."""
        try:
            plan = self._plan(path, model_of_file(path), staying)
        except EngineError:
            return None
        if plan.verdict.kind in ("fits", "unknown"):
            self._needed_bytes[path] = plan.bytes_of(MEMORY)
            return None
        change = "" if plan.verdict.change is None else f"; it would with {plan.verdict.change}"
        return f"{plan.verdict.message}{change}"

    def _plan(self, path: Path, model: PlannedModel, staying: Sequence[Path]) -> Plan:
        facts, config = self._facts(path.parent.absolute()), self._how.config
        available = facts.memory.available_bytes.value
        if available is not None:
            room = max(available + own_bytes() - self._reserved_bytes(staying), 0)
            fact = derived(room, "what is available, and what this server would give back")
            facts = replace(facts, memory=replace(facts.memory, available_bytes=fact))
        wishes = Wishes(
            context=config.context,
            cache_type=config.cache_type,
            num_sequences=config.num_sequences,
            num_threads=config.num_threads,
            compute=config.compute,
        )
        return make_plan(facts, model, wishes, engine_abilities())

    def _reserved_bytes(self, staying: Sequence[Path]) -> int:
        """Of those that stay, all that they may come to use; and the memory tier of the new one's cache."""
        tier = self._how.cache.ram_bytes
        return tier + sum(self._needed_bytes.get(path, 0) + tier for path in staying)


def own_bytes() -> int:
    """Memory that this process has and no file stands behind."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)
