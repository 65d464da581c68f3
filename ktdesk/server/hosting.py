"""The model of a server on its way from a file to readiness, and out again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ktdesk.server.errors import NotFoundError, NotReadyError
from ktdesk.server.opening import OpenedModel, ShowProgress
from ktdesk.server.served_model import ServedModel
from ktdesk.server.settings import ServerSettings
from ktdesk_engine.load_progress import LoadProgress

Stage = Literal["loading", "ready", "stopping", "failed"]


@dataclass(frozen=True)
class Health:
    stage: Stage
    percent: float
    reason: str | None = None


class LoadingStoppedError(Exception):
    """The server was told to stop while the model loaded."""


class ModelHost:
    """Loads one model in a thread of its own, and hands it out when it is there."""

    def __init__(
        self,
        path: Path,
        settings: ServerSettings,
        open_model: Callable[[Path, ShowProgress], OpenedModel],
    ) -> None:
        self.path = path
        self.name = model_name(path)
        self.settings = settings
        self._open_model = open_model
        self._percent = 0.0
        self._is_stopping = False
        self._model: ServedModel | None = None
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None
        """Why loading ended, if it failed."""

    def start(self, when_done: Callable[[], None] = lambda: None) -> None:
        """when_done: called on the loading thread, whether it went well or not."""
        self._thread = threading.Thread(target=self._load, args=(when_done,), name="load", daemon=True)
        self._thread.start()

    @property
    def health(self) -> Health:
        if self._is_stopping:
            return Health("stopping", 100.0)
        failure = self.failure or (self._model.answers.failure if self._model else None)
        if failure is not None:
            return Health("failed", self._percent, " ".join(str(failure).split()))
        return Health("ready", 100.0) if self._model else Health("loading", self._percent)

    @property
    def models(self) -> list[ServedModel]:
        return [self._model] if self._model else []

    def model(self, name: str | None) -> ServedModel:
        """The model of that name, or the only one."""
        self._check_name(name)
        health = self.health
        if health.stage != "ready" or self._model is None:
            error = NotReadyError(
                f"{self.name} is {health.stage} ({health.percent:.0f} %)"
                + (f": {health.reason}" if health.reason else "; try again soon"),
                code=health.stage,
            )
            error.retry_after_seconds = 1.0
            raise error
        return self._model

    def stop_accepting(self) -> None:
        self._is_stopping = True

    def close(self) -> None:
        self._is_stopping = True
        if self._thread is not None:
            self._thread.join()
        if self._model is not None:
            self._model.close(self.settings.finish_seconds)

    def _check_name(self, name: str | None) -> None:
        if name is not None and name.removesuffix(":latest") != self.name:
            raise NotFoundError(
                f"the model {name[:200]!r} is not served here; {self.name!r} is", param="model", code="model_not_found"
            )

    def _load(self, when_done: Callable[[], None]) -> None:
        try:
            self._model = ServedModel(self.name, self._open_model(self.path, self._show), self.settings)
        except LoadingStoppedError:
            pass
        except BaseException as error:
            self.failure = error
        when_done()

    def _show(self, progress: LoadProgress) -> None:
        if self._is_stopping:
            raise LoadingStoppedError
        self._percent = 100.0 * progress.done_bytes / max(progress.total_bytes, 1)


def model_name(path: Path) -> str:
    """The file's name, without its ending and without which shard it is."""
    stem = path.name.removesuffix(".gguf")
    head, _, number = stem.rpartition("-of-")
    if head and number.isdigit() and head[-5:].isdigit():
        return head[:-6]
    return stem
