"""Text in a configuration that a command writes. JSON is a part of YAML."""

from __future__ import annotations

import json


def as_key(text: str) -> str:
    """``text`` as a key."""
    return json.dumps(text, ensure_ascii=False)


def as_value(text: str) -> str:
    """``text`` as a value, where a dollar sign would name a variable of the environment."""
    return as_key(text).replace("$", "$$")
