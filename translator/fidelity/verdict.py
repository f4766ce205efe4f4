"""The verdict on one item of one path."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from interlingua.schemas import Datatype, ErrorCode


class Outcome(enum.Enum):
    """From best to worst. ``value`` is for people, ``mark`` for tables."""

    EXACT = ("exact", "=")
    """Arrives bit for bit."""
    CARRIED = ("carried", "=")
    """Arrives, in the form of the other dialect."""
    HERE = ("done here", "here")
    """The daemon handles it; the target does not see it, the caller sees no difference."""
    WIDENED = ("widened", "wider")
    """Arrives with the same value in a wider datatype."""
    DROPPED = ("dropped", "-")
    """Does not arrive; the request is executed without it."""
    UNKNOWN = ("needs the signature", "?")
    """Depends on the model's signature, which is unknown."""
    REFUSED = ("refused", "no")
    """The answer is an error that names it."""
    ABSENT = ("not offered", "")
    """Impossible: the caller's dialect cannot express it, or the target has no such models."""

    mark: str

    def __new__(cls, word: str, mark: str) -> Outcome:
        member = object.__new__(cls)
        member._value_ = word
        member.mark = mark
        return member

    @property
    def loses(self) -> bool:
        """Whether the result may differ from the intended one."""
        return self in (Outcome.WIDENED, Outcome.DROPPED, Outcome.UNKNOWN, Outcome.REFUSED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``outcome``, the wider ``datatype``, the ``code`` of a refusal, the name of the party that causes it
    (``by``), and a ``note`` on the consequence."""

    outcome: Outcome
    datatype: Datatype | None = None
    code: ErrorCode | None = None
    by: str = ""
    note: str = ""

    def __str__(self) -> str:
        words = self.outcome.value
        if self.datatype is not None:
            words += f" to {self.datatype.value}"
        if self.code is not None:
            words += f" ({self.code.name})"
        if self.by:
            words += f", by {self.by}"
        return f"{words}; {self.note}" if self.note else words
