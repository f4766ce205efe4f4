"""Writes what passes to a recording, as an observer: requests of chosen models, with their answers.

The event loop only puts into a queue, whose bytes are bounded; a thread redacts, packs and writes. What
finds no room is dropped and counted: a caller never waits for a disk.
"""

from __future__ import annotations

import logging
import random
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from queue import SimpleQueue
from typing import Any

from interlingua.schemas import InferRequest
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.recording.files import RecordingWriter
from interlingua.translator.recording.record import Record
from interlingua.translator.recording.redaction import Redaction
from interlingua.translator.serving.observation import Observed

_log = logging.getLogger(__name__)

_OVERHEAD_BYTES = 2048
"""What a record takes beside its tensors, about."""


@dataclass(slots=True)
class TapCounts:
    """What became of requests that the tap wanted: ``recorded``, ``cut`` (recorded with the first responses
    of their stream alone), ``dropped`` because too much was waiting, ``oversized`` for any file, or
    ``failed`` to be written."""

    recorded: int = 0
    cut: int = 0
    dropped: int = 0
    oversized: int = 0
    failed: int = 0


class Tap:
    """An ``Observer`` that keeps requests for ``models`` (globs), ``percent`` of them, those of one sequence
    all or none.

    ``max_queue_bytes`` bounds what waits to be written; half of it is for one stream at most. ``close`` it to
    have that written; ``writer`` is closed then.
    """

    def __init__(
        self,
        writer: RecordingWriter,
        models: Sequence[str] = ("*",),
        percent: float = 100.0,
        redaction: Redaction | None = None,
        max_queue_bytes: int = 64 << 20,
    ) -> None:
        self.counts = TapCounts()
        self._writer = writer
        self._models = models
        self._share = percent / 100
        self._redaction = redaction or Redaction()
        self._max_queue_bytes = max_queue_bytes
        self.max_stream_bytes = max_queue_bytes // 2
        self._queue: SimpleQueue[Record | None] = SimpleQueue()
        # each is counted up by one thread alone, so that no lock is needed
        self._taken_bytes = self._done_bytes = 0
        self._thread = threading.Thread(target=self._write_all, name="tap", daemon=True)
        self._thread.start()

    def wants(self, request: InferRequest) -> bool:
        """Whether ``request`` is to be recorded."""
        if not any(fnmatchcase(request.model, pattern) for pattern in self._models):
            return False
        if self._share >= 1:
            return True
        if request.sequence is not None:
            place = zlib.crc32(f"{request.model}\0{request.sequence.id}".encode(errors="replace")) / 2**32
        else:
            place = random.random()  # noqa: S311
        return place < self._share

    def saw(self, observed: Observed) -> None:
        """Have it written, where there is room."""
        record = Record.of(observed)
        nbytes = record.nbytes + _OVERHEAD_BYTES
        if self._taken_bytes - self._done_bytes + nbytes > self._max_queue_bytes:
            self.counts.dropped += 1
            return
        self._taken_bytes += nbytes
        self._queue.put(record)

    def report(self) -> dict[str, Any]:
        """The counts, and the bytes that wait to be written."""
        return {**asdict(self.counts), "queued_bytes": self._taken_bytes - self._done_bytes}

    def metrics(self) -> Iterator[Family]:
        """The same, for Prometheus."""
        yield Family(
            "interlingua_tap_requests_total",
            "counter",
            "Requests that the tap wanted, by what became of them",
            [Sample(count, {"outcome": outcome}) for outcome, count in asdict(self.counts).items()],
        )
        queued = [Sample(self._taken_bytes - self._done_bytes)]
        yield Family("interlingua_tap_queued_bytes", "gauge", "Bytes that wait to be written", queued)

    def close(self) -> None:
        """Write what waits, and close the file. Blocks until then."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _write_all(self) -> None:
        while (record := self._queue.get()) is not None:
            self._write(record)
            self._done_bytes += record.nbytes + _OVERHEAD_BYTES
        self._writer.close()
        _log.info("tap closed", extra={"facts": asdict(self.counts)})

    def _write(self, record: Record) -> None:
        try:
            if not self._writer.write(self._redaction.apply(record)):
                self.counts.oversized += 1
            elif record.answer.cut:
                self.counts.cut += 1
            else:
                self.counts.recorded += 1
        except Exception as error:
            # a thread that ended here would drop all that comes
            self.counts.failed += 1
            if self.counts.failed == 1:
                _log.error("recording failed", extra={"facts": {"reason": str(error)}})
