"""Takes out of a report what is nobody's business: who, where, and what opens doors.

User names, home folders, host names, addresses, and whatever looks like a key. What is replaced is named in <>, so
that a reader knows that something was there, and the same thing becomes the same name everywhere.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIN_NAME_LENGTH = 2
COMMON_NAMES = frozenset({"root", "user", "localhost", "home"})
"""Say nothing, and stand in many words."""
KEYS = (
    (re.compile(r"\b(?:hf|sk|ghp|gho|xox[abp]|pat|glpat)[_-][A-Za-z0-9_-]{8,}"), "<key>"),
    (re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}"), r"\1<key>"),
    (re.compile(r"(?i)((?:token|password|passwd|secret|api[_-]?key)\"?\s*[=:]\s*\"?)[^\s\"',}]+"), r"\1<key>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.]+\b"), "<mail>"),
    (re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+@"), "<key>@"),
    (re.compile(r"/(?:home|Users)/[^/\s\"':,]+"), "<home>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"), "<address>"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "<address>"),
)


@dataclass(frozen=True)
class Redaction:
    names: Mapping[str, str]
    """What is known of this user and machine -> what stands for it. The longest first."""

    def text(self, text: str) -> str:
        for name, replacement in self.names.items():
            if "/" in name:
                text = text.replace(name, replacement)
            else:
                text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", replacement, text)
        for pattern, replacement in KEYS:
            text = pattern.sub(replacement, text)
        return text

    def value(self, value: Any) -> Any:
        """Texts inside lists and objects too, keys of objects included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value


def redaction_of(home: str, user: str, host: str) -> Redaction:
    names: dict[str, str] = {}
    if len(home) > 1:
        names[home.rstrip("/")] = "<home>"
    for name, replacement in ((host, "<host>"), (host.partition(".")[0], "<host>"), (user, "<user>")):
        if len(name) >= MIN_NAME_LENGTH and name.lower() not in COMMON_NAMES:
            names.setdefault(name, replacement)
    return Redaction(dict(sorted(names.items(), key=lambda item: -len(item[0]))))


def redaction_here() -> Redaction:
    """Of whoever runs this, on this machine."""
    try:
        home = str(Path.home())
    except RuntimeError:
        home = os.environ.get("HOME", "")
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return redaction_of(home, user, socket.gethostname())
