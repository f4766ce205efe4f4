"""Fields of a request that an upstream's dialect cannot carry: named, counted, or refused.

Contract: exactly the fields that the dialect's codec omits. The codec itself refuses others, and datatypes.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlingua.protocols.dialect import Capability
from interlingua.schemas import InferRequest, not_text, unrepresentable

KINDS = ("id", "parameter", "sequence", "priority")
"""The kinds of fields; a priority includes the time that a request may wait."""


def dropped_fields(request: InferRequest, carried: Capability) -> Iterator[tuple[str, str]]:
    """The kind and description of each dropped field."""
    if request.id and carried.ids != "text" and not (carried.ids and _is_number(request.id)):
        yield "id", f"the id '{request.id}'"
    for name, value in request.parameters.items():
        names = carried.parameter_names
        # one that has a place of its own is refused where its value does not fit
        if (type(value) not in carried.parameters) if names is None else (name not in names):
            yield "parameter", f"request parameter '{name}'"
    if request.sequence is not None and not carried.sequences:
        yield "sequence", f"the sequence {request.sequence.id!r}"
    if (request.priority or request.timeout_us) and not carried.priorities:
        yield "priority", "a priority" if request.priority else "a time in the queue"


class DroppedFields:
    """Counts, for one model, the fields that ``dialect``, with the capability ``carried``, drops. ``strict``
    refuses the request instead, except for its id, which the answer has anyway."""

    __slots__ = ("_carried", "_dialect", "_strict", "counts")

    def __init__(self, dialect: str, carried: Capability, strict: bool = False) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self._dialect = dialect
        self._carried = carried
        self._strict = strict

    def note(self, request: InferRequest, upstream: str) -> None:
        """Count the dropped fields of ``request`` to ``upstream``. Raises UNREPRESENTABLE, with the field's
        name, if ``strict``, and for a parameter of bytes without a place of its own."""
        if not (
            request.id or request.parameters or request.sequence or request.priority or request.timeout_us
        ):
            return
        for name, value in request.parameters.items():
            if isinstance(value, bytes) and name not in (self._carried.parameter_names or ()):
                raise not_text(name, f"dialect '{self._dialect}'", origin=upstream)
        for kind, thing in dropped_fields(request, self._carried):
            if self._strict and kind != "id":
                raise unrepresentable(
                    f"dialect '{self._dialect}' has no place for {thing}; upstream '{upstream}' is strict",
                    origin=upstream,
                )
            self.counts[kind] += 1


def _is_number(identity: str) -> bool:
    """Whether it is the decimal form of a number from 1 to 2^64-1."""
    if not (identity.isascii() and identity.isdigit() and len(identity) <= 20):
        return False
    return str(int(identity)) == identity and 0 < int(identity) < 1 << 64
