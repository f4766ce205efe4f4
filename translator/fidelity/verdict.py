"""What becomes of one thing on one path."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from interlingua.schemas import Datatype, ErrorCode


class Outcome(enum.Enum):
    """From the best to the worst. ``value`` is the word for people; ``mark`` stands in tables."""

    EXACT = ("exact", "=")
    """Arrives bit for bit."""
    CARRIED = ("carried", "=")
    """Arrives, in the words of the other dialect."""
    HERE = ("done here", "here")
    """The target is not told: we do it for the caller, who sees no difference."""
    WIDENED = ("widened", "wider")
    """Arrives with the same value in a wider datatype."""
    DROPPED = ("dropped", "-")
    """Does not arrive; the request is answered without."""
    UNKNOWN = ("needs the signature", "?")
    """Whether it arrives as it was meant follows from the model's signature, which is not known."""
    REFUSED = ("refused", "no")
    """The request is answered with an error that says so."""
    ABSENT = ("not offered", "")
    """The caller's dialect has no words for it, or the target no models: it cannot come up."""

    mark: str

    def __new__(cls, word: str, mark: str) -> Outcome:
        member = object.__new__(cls)
        member._value_ = word
        member.mark = mark
        return member

    @property
    def loses(self) -> bool:
        """Whether the caller gets anything else than what was meant."""
        return self in (Outcome.WIDENED, Outcome.DROPPED, Outcome.UNKNOWN, Outcome.REFUSED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``outcome``, and for the curious: the wider ``datatype``; the ``code`` that the caller gets where
    something is refused; ``by`` which party it is as it is; ``note`` in words what follows."""

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
