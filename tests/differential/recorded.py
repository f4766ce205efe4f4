"""What every case showed when it was recorded, in one file for each caller."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import orjson

_FOLDER = Path(__file__).parent / "recorded"


def _path(caller: str) -> Path:
    return _FOLDER / f"{caller.replace('/', '-')}.json.gz"


@cache
def recorded(caller: str) -> dict[str, Any]:
    """The outcomes of a caller's cases, by their text."""
    found: dict[str, Any] = orjson.loads(gzip.decompress(_path(caller).read_bytes()))
    return found


def record(caller: str, outcomes: dict[str, Any]) -> None:
    """Replace those of ``caller``."""
    _FOLDER.mkdir(exist_ok=True)
    text = orjson.dumps(outcomes, option=orjson.OPT_SORT_KEYS)
    _path(caller).write_bytes(gzip.compress(text, 9, mtime=0))
