"""Which sequences the mirrors of several front ends copy, when their requests come to different ones.

Each front end publishes request numbers of a sequence, which are of one counter for all: at which its
copying began, at which it ended, the first request whose copy is not done, and at which a copy was dropped. A
sequence is copied if the last begin is after the last end. A copy is sent when no other front end has an
earlier one. All copies after a dropped one are dropped, and until then no sequence of the same id begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from zlib import crc32

from interlingua.protocols.shared_counts import SharedCount, SharedNames
from interlingua.runtime.upstream.pool.shared_gate import Doorbells

TABLES = 4

_MODEL_BITS = 16
_MODEL = (1 << _MODEL_BITS) - 1
"""A digest of the model is below the number at which a sequence has begun."""

_LOOKS = 2
"""How many ends are looked at for each sequence that is over: so few stay."""


class SharedSequences:
    """The part of this process in the sequences of the mirror in ``slot``. ``tables`` are of begins, ends,
    firsts and drops; ``exits`` counts the front ends that have exited."""

    def __init__(
        self, slot: int, tables: Sequence[SharedNames], exits: SharedCount, bells: Doorbells
    ) -> None:
        self._slot = slot
        self._begins, self._ends, self._firsts, self._drops = tables
        self._exits = exits
        self._bells = bells
        self._kept_ends: deque[str] = deque()

    def listen(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after other processes have changed something that copies here wait for."""
        self._bells.add(changed)

    def close(self, changed: Callable[[], None]) -> None:
        self._bells.remove(changed)

    @property
    def exits(self) -> int:
        return self._exits.total()

    def name(self, id_: int | str) -> str:
        """That of the sequence ``id_`` in shared memory."""
        return f"{self._slot} {id_!r}"

    def is_copied(self, name: str) -> bool:
        return self._begun(name) > self._ends.largest(name) and not self._drops.largest(name)

    def is_of(self, name: str, model: str) -> bool:
        """Whether the sequence that is copied is one of ``model``."""
        return self._begins.largest(name) & _MODEL == _digest(model)

    def begin(self, name: str, number: int, model: str) -> None:
        """A sequence of ``model`` that is copied begins with request ``number``."""
        self._begins.set(name, number << _MODEL_BITS | _digest(model))

    def end(self, name: str, number: int) -> None:
        """The sequence ends with request ``number``."""
        self._ends.set(name, max(number, self._ends.own(name)))

    def drop(self, name: str, number: int) -> None:
        """The copy of request ``number`` is dropped, and so must be those after it."""
        self.end(name, max(number, self._begun(name)))
        known = self._drops.own(name)
        self._drops.set(name, min(number, known or number))
        self._notify(name)

    def is_dropped(self, name: str, number: int) -> bool:
        """Whether a copy before that of request ``number`` was dropped."""
        return any(0 < drop < number for drop in self._drops.numbers(name))

    def wait_from(self, name: str, number: int) -> bool:
        """The first request here whose copy is not done has ``number``; 0 for none. False without space."""
        has_space = self._firsts.set(name, number)
        self._notify(name)
        return has_space

    def is_next(self, name: str, number: int) -> bool:
        """Whether no process has a copy before that of request ``number``."""
        return not any(0 < first < number for first in self._firsts.numbers(name))

    def settle(self, name: str) -> bool:
        """Let sequences begin again if what follows a dropped copy is gone. Whether nothing is left to do."""
        # a copy of another process may be before the dropped one, with others after it
        if self._others_wait(name):
            return False
        self._drops.set(name, 0)
        return True

    def forget(self, name: str) -> None:
        """This process has no copy of the sequence, and does not continue it."""
        self._begins.set(name, 0)
        if self._ends.own(name):
            self._kept_ends.append(name)
        for _ in range(min(_LOOKS, len(self._kept_ends))):
            name = self._kept_ends.popleft()
            if self._begins.largest(name):
                # without the end, a sequence that another process has begun would go on
                self._kept_ends.append(name)
            else:
                self._ends.set(name, 0)

    def _begun(self, name: str) -> int:
        """The number of the request with which the last sequence began."""
        return self._begins.largest(name) >> _MODEL_BITS

    def _notify(self, name: str) -> None:
        if self._others_wait(name) or self._drops.largest(name):
            self._bells.ring_all()

    def _others_wait(self, name: str) -> bool:
        """Whether another process has a copy that is not done."""
        return self._firsts.total(name) > self._firsts.own(name)


def _digest(model: str) -> int:
    return crc32(model.encode()) & _MODEL
