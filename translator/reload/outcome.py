"""The answer to a reload: what has changed, or why nothing has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from interlingua.translator.reload.differences import Differences


class ReloadRefusedError(Exception):
    """The configuration cannot be applied, so everything is as it was. ``reasons`` has one line for each
    fault."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """``changes`` of a reload, or the ``errors`` of one that was refused."""

    changes: Differences = field(default_factory=dict)
    errors: tuple[str, ...] = ()

    @property
    def reloaded(self) -> bool:
        return not self.errors

    def document(self) -> dict[str, Any]:
        """For JSON: kinds without a change are absent."""
        if self.errors:
            return {"reloaded": False, "errors": list(self.errors)}
        changes = {kind: asdict(found) for kind, found in self.changes.items() if found}
        return {"reloaded": True, "changes": changes}

    def facts(self) -> dict[str, str]:
        """For the log."""
        if self.errors:
            return {"reason": "; ".join(self.errors)}
        return {kind: ", ".join(_words(asdict(found))) for kind, found in self.changes.items() if found}


def lines(document: dict[str, Any]) -> Iterator[str]:
    """``ReloadOutcome.document`` for people."""
    if not document["reloaded"]:
        yield "refused; everything is as it was"
        yield from document["errors"]
        return
    if not document["changes"]:
        yield "reloaded; nothing has changed"
        return
    yield "reloaded"
    for kind, found in document["changes"].items():
        yield f"{kind}: {', '.join(_words(found))}"


def _words(found: dict[str, Any]) -> Iterator[str]:
    yield from (f"added {name}" for name in found["added"])
    yield from (f"removed {name}" for name in found["removed"])
    for name, keys in found["changed"].items():
        yield f"changed {name}" + (f" ({' '.join(keys)})" if keys else "")
