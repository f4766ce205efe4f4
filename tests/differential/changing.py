"""The parts of an outcome that differ each time."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

PATTERNS = [
    (re.compile(r"(?i)(date: )[^\r\n]*"), r"\1now"),
    (re.compile(r"dur=[0-9.]+"), "dur="),
    (re.compile(r"127\.0\.0\.1:\d{5}"), "127.0.0.1:port"),
    (re.compile(r"\[::ffff:127\.0\.0\.1\]:\d+"), "127.0.0.1:port"),
    (re.compile(r"(?i)(ce-id: )\S+"), r"\1id"),
    # invented by a daemon for its call to an upstream
    (re.compile(r"(00-0af7651916cd43dd[0-9a-f]{16}-)[0-9a-f]{16}"), r"\1span"),
    (re.compile(r"00-(?!0af7651916cd43dd)[0-9a-f]{32}-[0-9a-f]{16}"), "00-trace-span"),
    (re.compile(r"^(?!0af7651916cd43dd)[0-9a-f]{32}$"), "trace"),
    # bRPC puts the name of the machine into texts of errors
    (re.compile(r"^\[\w+\]"), "[machine]"),
    (re.compile(r"grpc-python-asyncio/\S+ grpc-c/\S+ \([^)]*\)"), "grpc-python"),
]
"""What changes, and what replaces it."""

_LONG = 8192
"""Longer texts are recorded by their digest."""

TIMES = frozenset({"time", "peer"})
"""Fields of log lines besides the durations, whose names end in ``_us``."""


def settled(value: Any) -> Any:
    """``value`` without what differs each time."""
    if isinstance(value, str):
        for pattern, replacement in PATTERNS:
            value = pattern.sub(replacement, value)
        if len(value) > _LONG:
            return f"{len(value)} characters: {sha256(value.encode()).hexdigest()}"
        return value
    if isinstance(value, dict):
        kept = {str(key): each for key, each in value.items() if key not in TIMES}
        return {settled(key): "us" if key.endswith("_us") else settled(each) for key, each in kept.items()}
    if isinstance(value, (list, tuple)):
        return [settled(each) for each in value]
    return value
