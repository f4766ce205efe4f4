"""An observer that records requests of chosen models, with their answers.

The event loop only appends to a queue of bounded size; a thread redacts, packs and writes. A full queue drops
the record and counts it: a caller never waits for a disk."""

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
"""The approximate size of a record without its tensors."""


@dataclass(slots=True)
class TapCounts:
    """Sampled requests by outcome: ``recorded``, ``cut`` (recorded with only the first responses of the
    stream), ``dropped`` (the queue was full), ``oversized`` (larger than a file may be), ``failed`` (not
    written)."""

    recorded: int = 0
    cut: int = 0
    dropped: int = 0
    oversized: int = 0
    failed: int = 0


class Tap:
    """An ``Observer`` that records ``percent`` of the requests for ``models`` (globs); sequences whole or
    not.

    ``max_queue_bytes`` bounds the queue; one stream may use half of it. ``close`` writes the rest and closes
    ``writer``."""

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
        # each has one writing thread, so no lock is needed
        self._taken_bytes = self._done_bytes = 0
        self._thread = threading.Thread(target=self._write_all, name="tap", daemon=True)
        self._thread.start()

    def should_observe(self, request: InferRequest) -> bool:
        if not any(fnmatchcase(request.model, pattern) for pattern in self._models):
            return False
        if self._share >= 1:
            return True
        if request.sequence is not None:
            place = zlib.crc32(f"{request.model}\0{request.sequence.id}".encode(errors="replace")) / 2**32
        else:
            place = random.random()  # noqa: S311
        return place < self._share

    def on_response(self, observed: Observed) -> None:
        """Queue it for writing, if it fits."""
        record = Record.of(observed)
        nbytes = record.nbytes + _OVERHEAD_BYTES
        if self._taken_bytes - self._done_bytes + nbytes > self._max_queue_bytes:
            self.counts.dropped += 1
            return
        self._taken_bytes += nbytes
        self._queue.put(record)

    def report(self) -> dict[str, Any]:
        return {**asdict(self.counts), "queued_bytes": self._taken_bytes - self._done_bytes}

    def metrics(self) -> Iterator[Family]:
        yield Family(
            "interlingua_tap_requests_total",
            "counter",
            "Requests sampled by the tap, by outcome.",
            [Sample(count, {"outcome": outcome}) for outcome, count in asdict(self.counts).items()],
        )
        queued = [Sample(self._taken_bytes - self._done_bytes)]
        yield Family("interlingua_tap_queued_bytes", "gauge", "Bytes waiting to be written.", queued)

    def close(self) -> None:
        """Write the queue and close the file; blocks until done."""
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
            # the thread must survive, or every later record is lost
            self.counts.failed += 1
            if self.counts.failed == 1:
                _log.error("recording failed", extra={"facts": {"reason": str(error)}})
