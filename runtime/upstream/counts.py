"""The requests to an upstream's model, by version, and how they ended.

The upstream says which version answers: a version that a client names may be any text, so it has no numbers
before it has answered. Requests without any answer, not even for metadata, count as well; copies for
mirrors do not.
"""

from __future__ import annotations

import time

from interlingua.runtime.models.statistics import Course, count_failure, count_refusal, count_success
from interlingua.schemas import Context, VersionStatistics

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

    def success(self, version: str, size: int, course: Course, context: Context) -> None:
        """Count a request of ``size`` batch elements, with ``context``, that ``version`` has answered; empty
        where it is unknown."""
        self.answered = version or self.answered
        if not context.copied:
            count_success(self.of(self.answered), size, course)

    def streamed(self, size: int, began: int, context: Context) -> None:
        """Count a request that was answered in a stream."""
        now = time.monotonic_ns()
        self.success("", size, Course(began, began, began, now, now), context)

    def failure(self, version: str, size: int, began: int, end: BaseException, context: Context) -> None:
        """Count a request for version ``version`` that ended without an answer: by an error, or since its
        caller has gone away."""
        if not context.copied:
            count_failure(self._of_version(version), size, began, end)

    def refused(self, version: str, context: Context) -> None:
        """Count a request that does not fit the signature, which is no failure of the model."""
        if not context.copied:
            count_refusal(self._of_version(version))

    def _of_version(self, version: str) -> VersionStatistics:
        return self.of(version if version in self.by_version else self.answered)
