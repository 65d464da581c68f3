"""What is known of this machine: looked at, and measured, by one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ktdesk.tui.kernels_first import import_kernels

if TYPE_CHECKING:
    from ktdesk.guided_setup import SetupChoice
    from ktdesk.settings import Settings
    from ktdesk.what_if import WhatIf
    from ktdesk_wizard.doctor.diagnosis import Finding
    from ktdesk_wizard.probe.machine_facts import MachineFacts


class MeasuringLeftError(Exception):
    """Nobody waits for it any more."""


class Measuring(NamedTuple):
    """How far it is."""

    stage: str
    share: float
    seconds: float


class Machine:
    """Made at once; what it does imports much, and blocks: not for an event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._is_left = threading.Event()
        """The measurement that was begun last; each has one of its own."""
        self._is_settled = threading.Event()
        self._stage, self._share, self._begun = "", 0.0, 0.0
        self.facts: MachineFacts | None = None
        self.findings: Sequence[Finding] = ()

    @property
    def is_measured(self) -> bool:
        from ktdesk_wizard.probe.measurement import is_measured

        return self.facts is not None and is_measured(self.facts)

    @property
    def measuring(self) -> Measuring | None:
        """None while nothing is measured, or nobody waits for it. At any time."""
        if not self._stage or self._is_left.is_set():
            return None
        return Measuring(self._stage, self._share, time.monotonic() - self._begun)

    def look(self) -> None:
        import_kernels()
        from ktdesk.diagnosing import diagnose

        with self._lock:
            diagnosis = diagnose(self._settings)
            self.facts, self.findings = diagnosis.case.facts, diagnosis.findings

    def begin_measuring(self) -> None:
        """From here on who waits for it waits until `measure` has come to its end. At any time."""
        self._is_left = threading.Event()
        self._is_settled.clear()
        self._stage, self._share, self._begun = "begins", 0.0, time.monotonic()

    def measure(self) -> None:
        """On all cores, for about half a minute. What was left is not kept."""
        from ktdesk_wizard.probe.measurement import check_can_be_kept, measure, save_measurement
        from ktdesk_wizard.probe.measuring_turn import measuring_turn

        assert self.facts is not None
        folder, is_left = self._settings.data_folder, self._is_left

        def check(stage: str) -> None:
            if is_left.is_set():
                raise MeasuringLeftError
            self._stage = stage

        def advance(share: float) -> None:
            self._share = share

        try:
            check_can_be_kept(folder)
            with self._lock, measuring_turn(folder, lambda: check("another ktdesk measures it")) as is_done:
                if not is_done:
                    save_measurement(measure(self.facts, check, advance), folder)
        except MeasuringLeftError:
            pass
        finally:
            if is_left is self._is_left:
                self._stage = ""
                self.settle()
        self.look()

    def leave(self) -> None:
        """A measurement that goes on ends within a second or two, and nobody waits for it. At any time."""
        self._is_left.set()
        self.settle()

    def settle(self) -> None:
        """It is measured, or stays as it is. At any time."""
        self._is_settled.set()

    def wait(self, seconds: float) -> bool:
        """So long at the most; whether it is settled: two measurements at once would both be wrong."""
        return self._is_settled.wait(seconds)

    def estimate(self, choice: SetupChoice) -> WhatIf | None:
        """Of a model of the catalogue, before its header was read."""
        from ktdesk.planning import catalogue
        from ktdesk.what_if import what_if_of_profile

        profile = catalogue(self._settings).get(choice.model.lower())
        if profile is None or self.facts is None:
            return None
        return what_if_of_profile(profile, self.facts, choice.wishes)
