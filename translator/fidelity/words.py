"""The matrix in brief, one path in detail, and both as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from interlingua.protocols.json_document import write_json
from interlingua.schemas import Datatype
from interlingua.translator.fidelity.path import Path
from interlingua.translator.fidelity.verdict import Outcome, Verdict

_WIDTH = 40


def in_words(path: Path) -> str:
    lines = [f"{path.caller.name} -> {path.target.name}", ""]
    for name, (sent, answered) in path.tensors.items():
        if str(sent) == str(answered):
            lines.append(_line(name, sent))
        else:
            lines += [_line(f"{name}, sent", sent), _line(f"{name}, answered", answered)]
    lines += ["", *(_line(name, verdict) for name, verdict in path.features.items()), ""]
    return "\n".join(lines)


def in_brief(paths: Iterable[Path]) -> str:
    """One line per path: its datatypes by outcome."""
    return "".join(
        f"{path.caller.name + ' -> ' + path.target.name:<{_WIDTH}}{_summary(path)}\n" for path in paths
    )


def as_json(paths: Iterable[Path]) -> bytes:
    return bytes(write_json([_document(path) for path in paths])) + b"\n"


def _line(name: str, verdict: Verdict) -> str:
    return f"  {name:<{_WIDTH}}{verdict}"


def _summary(path: Path) -> str:
    found: dict[Outcome, list[str]] = {Outcome.EXACT: []}
    for kind in Datatype:
        found.setdefault(path.worst(kind), []).append(kind.value)
    parts = [f"{len(found.pop(Outcome.EXACT))} exact"]
    return "; ".join([*parts, *(f"{outcome.value} {' '.join(names)}" for outcome, names in found.items())])


def _document(path: Path) -> Mapping[str, Any]:
    return {
        "from": path.caller.name,
        "to": path.target.name,
        "tensors": {
            name: {"sent": _verdict(sent), "answered": _verdict(answered)}
            for name, (sent, answered) in path.tensors.items()
        },
        "features": {name: _verdict(verdict) for name, verdict in path.features.items()},
    }


def _verdict(verdict: Verdict) -> Mapping[str, str]:
    fields = {
        "outcome": verdict.outcome.value,
        "datatype": verdict.datatype.value if verdict.datatype else "",
        "code": verdict.code.name if verdict.code else "",
        "by": verdict.by,
        "note": verdict.note,
    }
    return {key: value for key, value in fields.items() if value}
