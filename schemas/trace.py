"""The spans of a sampled request, in plain values that any process can record and pass on.

Ids and the header are those of W3C Trace Context, level 1. ``translator.tracing`` samples and exports.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["server", "client", "internal"]

SAMPLED = 0x01
"""The flag of a caller that records its own span (section 3.2.2.5)."""

# section 3.2.2: version ff and ids of zeros are invalid; only later versions have further fields
_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)


class Parent(NamedTuple):
    """The span of a caller."""

    trace_id: int
    span_id: int
    flags: int


def read_traceparent(header: str) -> Parent | None:
    """The caller's span in ``header``; None if it is invalid, which is as if it were absent."""
    found = _TRACEPARENT.fullmatch(header)
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    return Parent(int(found[2], 16), int(found[3], 16), int(found[4], 16))


def trace_id_of(traceparent: str) -> str:
    """The trace id in ``traceparent``, in hexadecimal; empty if it is invalid."""
    parent = read_traceparent(traceparent) if traceparent else None
    return "" if parent is None else f"{parent.trace_id:032x}"


def new_span_id() -> int:
    return random.getrandbits(64) or 1


@dataclass(slots=True, eq=False)
class Span:
    """A span from ``began_ns`` to ``ended_ns``, nanoseconds since 1970. ``error`` describes a failure."""

    name: str
    kind: Kind
    span_id: int
    parent_id: int
    began_ns: int
    ended_ns: int
    attributes: dict[str, str | int | bool] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True, eq=False)
class Trace:
    """The ``spans`` that this server adds to the trace of a request. ``span_id`` is the span that holds them,
    ``parent_id`` that of its caller, 0 for none. ``began_ns`` counts since 1970, ``offset_ns`` leads there
    from ``time.monotonic_ns()``, so that no step of the system's clock changes a duration."""

    trace_id: int
    parent_id: int = 0
    flags: int = SAMPLED
    tracestate: str = ""
    span_id: int = field(default_factory=new_span_id)
    spans: list[Span] = field(default_factory=list)
    offset_ns: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())

    @classmethod
    def new(cls) -> Trace:
        """The root of a new trace."""
        return cls(random.getrandbits(128) or 1)

    @classmethod
    def below(cls, parent: Parent, tracestate: str = "") -> Trace:
        """A part of the caller's trace."""
        return cls(parent.trace_id, parent.span_id, parent.flags | SAMPLED, tracestate)

    def part(self) -> Trace:
        """A part of this trace, below its span, that is recorded and exported by itself."""
        return Trace(self.trace_id, self.span_id, self.flags, self.tracestate)

    @property
    def traceparent(self) -> str:
        """The header that makes a callee's span a child of this one."""
        return self.header(self.span_id)

    def header(self, span_id: int) -> str:
        return f"00-{self.trace_id:032x}-{span_id:016x}-{self.flags:02x}"

    def child(self, name: str, began: int, ended: int, kind: Kind = "internal") -> Span:
        """Add a span below that of the request; times are ``time.monotonic_ns()``."""
        offset = self.offset_ns
        span = Span(name, kind, new_span_id(), self.span_id, began + offset, ended + offset)
        self.spans.append(span)
        return span

    def stages(self, timings: Mapping[str, int], ended: Mapping[str, int]) -> None:
        """Add the stages of the request, see ``Context``. That of an upstream has a span for each attempt."""
        for stage, moment in ended.items():
            if stage != "upstream":
                self.child(stage, moment - timings[stage], moment)

    def own(self, name: str, began: int, ended: int, kind: Kind = "internal") -> Span:
        """Add the span that holds the others."""
        offset = self.offset_ns
        span = Span(name, kind, self.span_id, self.parent_id, began + offset, ended + offset)
        self.spans.append(span)
        return span
