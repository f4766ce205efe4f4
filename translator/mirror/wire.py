"""What passes between the daemon and the process that judges for it: records one way, verdicts the other.

Both ends are one program. The daemon's is to be cheap: verdicts are plain values in marshalled form.
"""

from __future__ import annotations

import asyncio
import marshal
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from operator import attrgetter

from protocols.wire import Buffer
from translator.diff import AnswerDiff, Fault, TensorDiff
from translator.mirror.judge import Verdict
from translator.recording.layout import pack, unpack
from translator.recording.record import Record

RECORD = struct.Struct("<QIdQQ")
"""Before a record: its number, that of its mirror, the seconds there are, the bytes of its head and of its
tensors."""

VERDICT = struct.Struct("<QI")
"""Before a verdict: the number of its record, and its bytes, 0 where there was a fault of ours."""


_members = attrgetter(*[field.name for field in fields(TensorDiff)])
_FAULT = [field.name for field in fields(TensorDiff)].index("fault")
_FAULTS: dict[str | None, Fault | None] = {None: None, **{fault.value: fault for fault in Fault}}


_GATHER_SECS = 0.01
"""How long what is to be sent waits for more: to send, and to be woken by it, takes as long as the rest."""


class Gathered:
    """Gives what is added within some milliseconds to ``send`` all together. Use on one event loop."""

    def __init__(self, send: Callable[[list[Buffer]], None]) -> None:
        self._send = send
        self._parts: list[Buffer] = []

    def add(self, *parts: Buffer) -> None:
        """Have ``parts`` sent, in order."""
        if not self._parts:
            asyncio.get_running_loop().call_later(_GATHER_SECS, self._flush)
        self._parts += parts

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        self._send(parts)


def record_frame(number: int, mirror: int, record: Record, secs: float) -> list[Buffer]:
    """A record to be judged. Raises ``ValueError`` for one that has no form."""
    head, tensors = pack(record)
    nbytes = sum([memoryview(tensor).nbytes for tensor in tensors])
    return [RECORD.pack(number, mirror, secs, len(head), nbytes) + head, *tensors]


def read_record(body: bytes, head_bytes: int) -> Record:
    """The record of a frame, without what stands before it."""
    view = memoryview(body)
    return unpack(body[:head_bytes], view[head_bytes:])


def verdict_frame(number: int, verdict: Verdict | None) -> bytes:
    """The verdict on record ``number``; None where there is none."""
    body = b""
    if verdict is not None:
        outputs = [_plain(output) for output in verdict.diff.outputs]
        told = (outputs, verdict.diff.failures, verdict.failed, verdict.elapsed_ns, verdict.kept)
        body = marshal.dumps(told)
    return VERDICT.pack(number, len(body)) + body


def _plain(output: TensorDiff) -> list[object]:
    members = list(_members(output))
    members[_FAULT] = output.fault and output.fault.value
    return members


def _read_verdict(body: bytes) -> Verdict:
    # from our own process, over a socket that nobody else has
    outputs, failures, failed, elapsed_ns, kept = marshal.loads(body)  # noqa: S302
    for members in outputs:
        members[_FAULT] = _FAULTS[members[_FAULT]]
    diff = AnswerDiff(tuple([TensorDiff(*members) for members in outputs]), failures)
    return Verdict(diff, failed, elapsed_ns, kept)


class VerdictReader:
    """Cuts what comes into verdicts, each with the number of its record."""

    def __init__(self) -> None:
        self._got = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, Verdict | None]]:
        """The verdicts that ``data`` completes."""
        got = self._got
        got += data
        at = 0
        while len(got) - at >= VERDICT.size:
            number, nbytes = VERDICT.unpack_from(got, at)
            end = at + VERDICT.size + nbytes
            if len(got) < end:
                break
            body = bytes(got[at + VERDICT.size : end])
            at = end
            yield number, _read_verdict(body) if body else None
        del got[:at]
