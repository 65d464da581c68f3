"""How often each expert of a model was used, kept in the data folder from one start to the next: a file a model.

A file is named by what it is: copied, touched or changed, a model begins anew. What cannot be read is left alone
and said in the log.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ktdesk_engine.engine import Engine
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.prefix_cache.fingerprint import file_fingerprint
from ktdesk_engine.text_engine import TextEngine

log = logging.getLogger("ktdesk.server")

FORMAT = 1
Rates = npt.NDArray[np.float64]


def use_folder(data_folder: Path) -> Path:
    return data_folder / "profiles" / "use"


@dataclass(frozen=True)
class UseRecord:
    """What a file holds."""

    path: Path
    model: str
    saved: str
    """When, in UTC."""
    rates: Rates
    """(L, E): as `ExpertUse.rates`."""
    file: Path | None = None
    """The model's, where it lay. None: it was not written down."""


def read_use(path: Path) -> UseRecord:
    """ValueError where it is torn, or something else."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError("it is no record of how experts were used")
    rates = np.array(facts["rates"], np.float64)
    if rates.ndim != 2 or not np.isfinite(rates).all():
        raise ValueError("it holds no table of numbers")
    file = Path(str(facts["file"])) if facts.get("file") else None
    return UseRecord(path, str(facts["model"]), str(facts["saved"]), rates, file)


def kept_uses(data_folder: Path) -> Iterator[UseRecord]:
    """Those that can be read, by file name."""
    records = map(_read_or_tell, sorted(use_folder(data_folder).glob("*.json")))
    return (record for record in records if record is not None)


def _read_or_tell(path: Path) -> UseRecord | None:
    try:
        return read_use(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is left alone: %s", path, error)
        return None


class KeptUse:
    """Of one loaded model. Any thread may save it."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        """folder: for all models."""
        self._engine = engine
        self._path = folder / f"{file_fingerprint(engine.file).hex()}.json"
        self._file = engine.file.path.absolute()
        self._lock = threading.Lock()
        self._saved: Rates | None = None
        self._has_complained = False

    def restore(self) -> None:
        """What was kept, if it is there and is this model's; experts on an accelerator follow it."""
        if not self._path.exists():
            return
        try:
            record = read_use(self._path)
            self._engine.restore_use(record.rates)
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            log.warning("how experts were used is counted anew: %s: %s", self._path, error)
        else:
            self._saved = record.rates

    def save(self) -> None:
        """Atomic; nothing where nothing changed. A disk that refuses is told once."""
        use = self._engine.experts.use
        with self._lock:
            if use is None:
                return
            rates = use.seen().round(2)
            if not rates.any() or (self._saved is not None and np.array_equal(rates, self._saved)):
                return
            try:
                self._write(rates)
            except OSError as error:
                if not self._has_complained:
                    log.warning("how experts were used cannot be kept: %s", error)
                self._has_complained = True
            else:
                self._saved = rates

    def _write(self, rates: Rates) -> None:
        facts = {
            "format": FORMAT,
            "model": self._file.name,
            "file": str(self._file),
            "saved": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "rates": rates.tolist(),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        try:
            partial.write_text(json.dumps(facts), encoding="utf-8")
            os.replace(partial, self._path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def keep_use(engine: TextEngine, data_folder: Path | None) -> KeptUse | None:
    """Restored; None where nothing is counted, or nothing is kept."""
    if data_folder is None or not isinstance(engine, Engine) or engine.experts.use is None:
        return None
    kept = KeptUse(engine, use_folder(data_folder))
    kept.restore()
    return kept
