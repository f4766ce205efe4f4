"""Formats a mirror report, parsed from JSON, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def as_text(report: Mapping[str, Any]) -> str:
    """The text of a report made by ``translator.mirror.reports``. Raises ``LookupError``, ``TypeError`` or
    ``AttributeError`` for any other document."""
    blocks = ["".join(f"{_printable(line)}\n" for line in _of_one(mirror)) for mirror in report["mirrors"]]
    return "\n".join(blocks) or "no mirrors\n"


def _of_one(mirror: Mapping[str, Any]) -> Iterator[str]:
    name = mirror["name"] if mirror["name"] == mirror["to"] else f"{mirror['name']}, copies to {mirror['to']}"
    yield f"{name}: {mirror['compared']} compared, {mirror['equal']} equal, {mirror['different']} different"
    yield f"  {mirror['percent']:g} % of requests, rtol {mirror['rtol']:g}, atol {mirror['atol']:g}"
    if mirror["cut"]:
        yield f"  {mirror['cut']} long streams compared in their first responses"
    for title, counts in (("dropped", mirror["dropped"]), ("kept", mirror["kept"])):
        if counts:
            yield f"  {title}: " + ", ".join(f"{count} {why}" for why, count in counts.items())
    for kind, failure in mirror["failures"].items():
        yield f"  {kind}: {failure['count']}, the last: {failure['last']}"
    sides = mirror["latency_ms"].items()
    yield from _table(
        [
            ("latency in ms", "answers", "mean", "p50", "p90", "p99"),
            *((side, *_numbers(latency, "count", "mean", "p50", "p90", "p99")) for side, latency in sides),
        ],
        6,
    )
    outputs = [
        (name, *_numbers(output, "compared", "different", "max_absolute", "max_relative"), _how(output))
        for name, output in mirror["outputs"].items()
    ]
    if outputs:
        head = ("output", "compared", "different", "max abs", "max rel", "faults, and the first one")
        yield from _table([head, *outputs], 5)


def _how(output: Mapping[str, Any]) -> str:
    faults = ", ".join(f"{fault} {count}" for fault, count in output["faults"].items())
    first = output["first"]
    if not first:
        return faults
    request = f"request '{first['request_id']}'" if first["request_id"] else f"request {first['number']}"
    parts = [
        f"response {first['response']}" if first["response"] else "",
        f"at {list(first['index'])}" if first["index"] is not None else "",
        f"byte {first['byte']}" if first["byte"] is not None else "",
        f"expected {first['expected']}" if first["expected"] else "",
        f"got {first['actual']}" if first["actual"] else "",
    ]
    return f"{faults}; {request}" + "".join(f", {part}" for part in parts if part)


def _table(rows: Sequence[tuple[str, ...]], aligned: int) -> Iterator[str]:
    """A line for each row: the first column left-aligned, those before ``aligned`` right-aligned."""
    widths = [max(len(_printable(cell)) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [_printable(row[0]).ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:aligned], widths[1:], strict=False)]
        yield "  " + "  ".join([*cells, *row[aligned:]])


def _numbers(row: Mapping[str, Any], *keys: str) -> Iterator[str]:
    for value in map(row.get, keys):
        yield "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _printable(text: str) -> str:
    """``text`` with control characters escaped: names and messages may contain any."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
