"""A ``GrpsMessage`` in JSON, read: as each of the original servers reads it."""

from __future__ import annotations

from typing import Any

from protocols.grps.json_habits import JsonHabits
from protocols.grps.message import GrpsMessage
from protocols.wire import Buffer


def parse_document(body: Buffer, habits: JsonHabits) -> Any:
    """The JSON value in ``body``, for :func:`read_document`; long lists may be lazy ones.
    Raises MALFORMED."""
    raise NotImplementedError


def read_document(document: Any, habits: JsonHabits) -> GrpsMessage:
    """The message that ``document`` is. Raises MALFORMED in the words of the original servers."""
    raise NotImplementedError
