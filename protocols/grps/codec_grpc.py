"""A ``GrpsMessage`` in protobuf: what gRPC and bRPC carry."""

from __future__ import annotations

from protocols.grps.message import GrpsMessage
from protocols.wire import Buffer


def read_message(data: Buffer) -> GrpsMessage:
    """The message in ``data``, its numbers as views where they can be. Raises MALFORMED."""
    raise NotImplementedError


def write_message(message: GrpsMessage) -> bytes:
    """``message`` on the wire; an ndarray has no contents there. Raises TOO_LARGE."""
    raise NotImplementedError
