"""A ``GrpsMessage`` in JSON, written: in the order, the layout and the forms of the original servers."""

from __future__ import annotations

from protocols.grps.json_habits import JsonHabits
from protocols.grps.message import GrpsMessage


def write_message(message: GrpsMessage, habits: JsonHabits, indent: int | None = None) -> bytes:
    """The document, whatever its kind; ``indent`` in place of that of ``habits``.

    Raises UNREPRESENTABLE naming the tensor for an ndarray that nests too deep.
    """
    raise NotImplementedError
