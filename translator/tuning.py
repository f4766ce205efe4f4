"""Settings of the interpreter for processes that serve requests."""

from __future__ import annotations

YOUNG_OBJECTS = 10_000
"""The threshold of the youngest generation of the garbage collector. A request leaves no cycles, and with
Python's own 700 the collector takes a tenth of the time of a small request."""
