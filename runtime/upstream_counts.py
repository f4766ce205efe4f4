"""What a model behind an upstream was asked, by version, and how that ended.

The upstream says which version answers: a version that a client names may be any text, so it has no numbers
before it has answered. Requests that nobody answered, not even for metadata, count as well.
"""

from __future__ import annotations

import time

from runtime.statistics import Course, count_failure, count_success
from schemas import VersionStatistics

UNNAMED_VERSION = "1"
"""What an upstream's version is called while the upstream has not said."""


class UpstreamCounts:
    """The numbers of one model. ``answered`` is the version that answered last."""

    def __init__(self) -> None:
        self.by_version: dict[str, VersionStatistics] = {}
        self.answered = UNNAMED_VERSION

    def of(self, version: str) -> VersionStatistics:
        """The statistics of ``version``, which is the upstream's own name for it."""
        return self.by_version.setdefault(version, VersionStatistics())

    def success(self, version: str, size: int, course: Course) -> None:
        """Count a request of ``size`` batch elements that ``version`` has answered; empty where it is not
        told."""
        self.answered = version or self.answered
        count_success(self.of(self.answered), size, course)

    def streamed(self, size: int, began: int) -> None:
        """Count a request that was answered in a stream."""
        now = time.monotonic_ns()
        self.success("", size, Course(began, began, began, now, now))

    def failure(self, asked: str, size: int, began: int, end: BaseException) -> None:
        """Count a request for version ``asked`` that ended without an answer: by an error, or since its
        caller has gone away."""
        count_failure(self._asked(asked), size, began, end)

    def refused(self, asked: str) -> None:
        """Count a request that does not fit the signature, which is no failure of the model."""
        self._asked(asked).refused += 1

    def _asked(self, version: str) -> VersionStatistics:
        return self.of(version if version in self.by_version else self.answered)
