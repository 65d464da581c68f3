"""What is known of this machine: looked at, and measured, by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ktdesk.guided_setup import SetupChoice
from ktdesk.planning import catalogue
from ktdesk.settings import Settings
from ktdesk.what_if import WhatIf, what_if_of_profile
from ktdesk_wizard.doctor.diagnosis import Finding
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import is_measured, measure, save_measurement


class MeasuringStoppedError(Exception):
    """The app ends."""


class Machine:
    """All but the attributes blocks: not for an event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()
        self.facts: MachineFacts | None = None
        self.findings: Sequence[Finding] = ()

    @property
    def is_measured(self) -> bool:
        return self.facts is not None and is_measured(self.facts)

    def look(self) -> None:
        from ktdesk.diagnosing import diagnose

        with self._lock:
            diagnosis = diagnose(self._settings)
            self.facts, self.findings = diagnosis.case.facts, diagnosis.findings

    def measure(self) -> None:
        """On all cores, for about half a minute."""
        assert self.facts is not None
        with self._lock:
            save_measurement(measure(self.facts, self._check), self._settings.data_folder)
        self.look()

    def stop(self) -> None:
        """A measurement that goes on ends within a second or two, and is not kept."""
        self._is_stopping.set()

    def _check(self) -> None:
        if self._is_stopping.is_set():
            raise MeasuringStoppedError

    def wait(self) -> None:
        """Until nothing is measured: two at once would both be wrong."""
        with self._lock:
            pass

    def estimate(self, choice: SetupChoice) -> WhatIf | None:
        """Of a model of the catalogue, before its header was read."""
        profile = catalogue(self._settings).get(choice.model.lower())
        if profile is None or self.facts is None:
            return None
        return what_if_of_profile(profile, self.facts, choice.wishes)
