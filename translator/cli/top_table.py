"""The tables of ``interlingua top`` as lines of text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from interlingua.translator.cli.colours import Colour, painted
from interlingua.translator.cli.snapshots import DaemonView, MemberRow, ModelRow, ServerProcessRow

Cell = tuple[str, Colour | None]

_STATES: dict[str, Colour] = {
    "READY": "green",
    "in use": "green",
    "ready": "green",
    "LOADING": "amber",
    "UNLOADING": "amber",
    "not ready": "amber",
    "UNAVAILABLE": "red",
    "ejected": "red",
}

_WIDEST = 40
"""Longer names are cut, so that numbers stay on the screen."""


MODEL_COLUMNS: dict[str, Callable[[ModelRow], Any]] = {
    "MODEL": lambda row: row.model,
    "STATE": lambda row: row.state,
    "REQ/S": lambda row: -row.requests_per_sec,
    "ERR/S": lambda row: -row.failed_per_sec,
    "P50 MS": lambda row: -(row.p50_ms or 0),
    "P95 MS": lambda row: -(row.p95_ms or 0),
    "P99 MS": lambda row: -(row.p99_ms or 0),
    "QUEUE": lambda row: -(row.waiting or 0),
}
"""The columns of models, each with its order: names ascending, numbers descending."""

BUSIEST = "REQ/S"


@dataclass(slots=True)
class ModelOrder:
    """How models are sorted: by a column, in its order or in reverse."""

    column: str = BUSIEST
    reverse: bool = False

    def next_column(self) -> None:
        names = list(MODEL_COLUMNS)
        self.column = names[(names.index(self.column) + 1) % len(names)]

    def of(self, rows: Sequence[ModelRow]) -> list[ModelRow]:
        """``rows`` sorted; equal ones by name."""
        by_name = sorted(rows, key=lambda row: row.model)
        return sorted(by_name, key=MODEL_COLUMNS[self.column], reverse=self.reverse)


def table(view: DaemonView, order: ModelOrder | None = None) -> Iterator[str]:
    """Models, then upstream servers and processes, where there are any."""
    models = view.models if order is None else order.of(view.models)
    yield from _aligned(tuple(MODEL_COLUMNS), map(_model, models))
    if view.upstreams:
        yield ""
        yield from _aligned(
            ("UPSTREAM SERVER", "STATE", "REQ/S", "ERR/S", "IN FLIGHT"), map(_member, view.upstreams)
        )
    if view.processes:
        yield ""
        yield from _aligned(
            ("PROCESS", "STATE", "PID", "UP S", "RESTARTS", "CONNECTIONS"), map(_process, view.processes)
        )


def _model(row: ModelRow) -> Sequence[Cell]:
    latencies = map(_number, (row.p50_ms, row.p95_ms, row.p99_ms))
    rates = (_number(row.requests_per_sec), _failed(row.failed_per_sec))
    return (_text(row.model), _state(row.state), *rates, *latencies, _count(row.waiting))


def _member(row: MemberRow) -> Sequence[Cell]:
    rates = (_number(row.requests_per_sec), _failed(row.failed_per_sec))
    return (_text(f"{row.upstream} {row.server}"), _state(row.state), *rates, _count(row.in_flight))


def _process(row: ServerProcessRow) -> Sequence[Cell]:
    return (
        _text(row.process),
        _state("ready" if row.ready else "not ready"),
        _count(row.pid),
        _text(f"{row.uptime_secs:.0f}"),
        _count(row.restarts),
        _count(row.connections),
    )


def _aligned(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """The first two columns to the left, numbers to the right."""
    lines: list[Sequence[Cell]] = [[(head, "bold") for head in heads], *rows]
    widths = [max(len(line[place][0]) for line in lines) for place in range(len(heads))]
    for line in lines:
        cells = []
        for place, ((text, colour), width) in enumerate(zip(line, widths, strict=True)):
            padded = text.ljust(width) if place < 2 else text.rjust(width)
            cells.append(padded if colour is None else painted(padded, colour, sys.stdout))
        yield "  ".join(cells).rstrip()


def _text(text: str) -> Cell:
    return (text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"), None


def _count(value: int | None) -> Cell:
    return "-" if value is None else str(value), None


def _state(state: str) -> Cell:
    return state, _STATES.get(state)


def _number(value: float | None) -> Cell:
    return ("-" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"), None


def _failed(value: float) -> Cell:
    return _number(value)[0], "red" if value else None
