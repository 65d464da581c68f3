"""JSON on standard output: valid whatever the encoding is."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping
from typing import Any


def json_text(facts: Mapping[str, Any]) -> str:
    """An object over several lines; letters beyond ASCII as they are where they can be written, else escaped."""
    is_utf8 = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    return json.dumps(facts, ensure_ascii=not is_utf8, indent=2)
