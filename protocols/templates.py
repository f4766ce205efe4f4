"""How messages that differ in the contents of slots alone are recognized: by their size, and by the constant
segments between the slots.

A slot holds the contents of a tensor, or the id of the request: an id may have any value of its length in a
declared alphabet, which no text form escapes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from interlingua.protocols.wire import ArrivingMessage, Buffer
from interlingua.schemas import Datatype, InferRequest, SharedMemoryRef, Tensor

Place = tuple[int, int]
"""Where a slot begins and ends in a message."""

ID_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
"""What an id in a slot consists of."""

LONGEST: Final = 4096
"""How many bytes of a message are kept at most."""

_WITH_MEANING = frozenset({Datatype.BYTES, Datatype.BOOL})
"""Datatypes whose contents a codec may check."""

is_id: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}").fullmatch
"""Whether bytes of a message, from one place to another, may be an id in a slot."""


class MessageTemplate(NamedTuple):
    """Messages of ``size`` bytes with these ``segments``, each with its place, and an ``id`` at its place, if
    there is one."""

    size: int
    segments: tuple[tuple[int, int, bytes], ...]
    id: Place | None = None

    @property
    def lead(self) -> int:
        """How many bytes precede the contents if nothing follows them; else 0."""
        first = self.segments[0] if len(self.segments) == 1 else (1, 0, b"")
        return 0 if first[0] or self.id is not None else first[1]

    def fits(self, message: Buffer | ArrivingMessage) -> bool:
        """Whether ``message``, of this size, is one of them."""
        if any(bytes(message[start:stop]) != segment for start, stop, segment in self.segments):
            return False
        return self.id is None or is_id(self.id_in(message)) is not None

    def id_in(self, message: Buffer | ArrivingMessage) -> bytes:
        """The id in ``message``, b"" without a slot for it."""
        return b"" if self.id is None else bytes(message[self.id[0] : self.id[1]])

    def example(self, identity: bytes = b"") -> memoryview:
        """A message with this id and zeros as contents, which take no memory unless they are read."""
        made = np.zeros(self.size, np.uint8).data
        for start, stop, segment in self.segments:
            made[start:stop] = segment
        if self.id is not None:
            made[self.id[0] : self.id[1]] = identity
        return made


def template_of(message: Buffer, slots: Sequence[Place], id_slot: Place | None) -> MessageTemplate:
    """The template of ``message``, which has contents in ``slots``, and an id in ``id_slot``, if any."""
    ordered = sorted(slots if id_slot is None else [*slots, id_slot])
    bounds = [0, *[end for slot in ordered for end in slot], len(message)]
    gaps = zip(bounds[::2], bounds[1::2], strict=True)
    segments = tuple([(start, stop, bytes(message[start:stop])) for start, stop in gaps if start < stop])
    return MessageTemplate(len(message), segments, id_slot)


def place_in(message: Buffer, contents: Buffer) -> Place | None:
    """Where ``contents``, a view of ``message``, are in it; None if they are not its memory, or empty."""
    start = _address(contents) - _address(message)
    stop = start + len(contents)
    return (start, stop) if contents and start >= 0 and stop <= len(message) else None


def contents_in(message: Buffer, tensors: Sequence[Tensor], decodes: bool = True) -> list[Place] | None:
    """Where ``message`` has the contents of each of ``tensors``. None if a tensor is not there as it is in
    memory, if much else is there, or if the codec checks the contents that it ``decodes``."""
    slots: list[Place] = []
    for tensor in tensors:
        slot = None
        unread = not decodes or tensor.datatype not in _WITH_MEANING
        if unread and not isinstance(tensor.data, SharedMemoryRef):
            slot = place_in(message, tensor.data)
        if slot is None:
            return None
        slots.append(slot)
    kept = len(message) - sum([stop - start for start, stop in slots])
    return slots if slots and kept <= LONGEST else None


def has_tensors_alone(request: InferRequest) -> bool:
    """Whether ``request`` has, besides an id, only tensors in memory, and plain outputs."""
    if request.parameters or request.sequence or request.priority or request.timeout_us:
        return False
    if any(isinstance(each.data, SharedMemoryRef) or each.parameters for each in request.inputs):
        return False
    return not any(
        each.classification or each.placement is not None or each.parameters for each in request.outputs or ()
    )


def _address(data: Buffer) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0
