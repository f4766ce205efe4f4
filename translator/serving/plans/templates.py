"""How a request is recognized: by its head, as far as a codec reads it, and by the bytes of its message
around its tensors."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from interlingua.protocols.templates import MessageTemplate
from interlingua.protocols.wire import Buffer
from interlingua.translator.serving.plans.forward import ForwardPlan
from interlingua.translator.serving.plans.local import LocalPlan

_MOST_KINDS = 256
_MOST_SIZES = 32
"""How many sizes of messages with the same head have templates."""
_MOST_ALIKE = 4
"""How many templates of one size."""
_MOST_TARGETS = 8

_EVERY = 256
"""So often at least, something is learned: a plan may be for a model that has been replaced."""


class Template:
    """Messages that fit ``recognized``; without it, all with the same head, which are decoded. They name
    ``model``, or none (``default``), and ``version``, in ``dialect``. ``plans`` are by the target of the
    request."""

    __slots__ = ("default", "dialect", "fits", "id", "message", "model", "plans", "segments", "version")

    def __init__(
        self,
        recognized: MessageTemplate | None,
        model: str,
        default: bool,
        version: str,
        dialect: str,
    ) -> None:
        self.message = message = recognized or MessageTemplate(0, ())
        self.segments, self.id, self.fits = message.segments, message.id, message.fits
        self.model = model
        self.default = default
        self.version = version
        self.dialect = dialect
        self.plans: dict[Any, Any] = {}

    def add(self, plan: ForwardPlan | LocalPlan) -> None:
        """Use ``plan`` for its target."""
        if len(self.plans) >= _MOST_TARGETS:
            del self.plans[next(iter(self.plans))]
        self.plans[plan.target] = plan


class HeadKind:
    """The requests with one head, as far as codecs read it: their templates by size, and the one of all that
    are ``decoded``. ``missed`` counts those that had no plan; the next response is ``due`` to learn from.
    ``used`` is for the eviction."""

    __slots__ = ("decoded", "due", "missed", "sizes", "used")

    def __init__(self) -> None:
        self.missed = 1
        self.due = False
        self.used = False
        self.sizes: dict[int, list[Template]] = {}
        self.decoded: Template | None = None

    def learns(self) -> bool:
        """Count a request without a plan. Whether one is learned from it: never from the first, and
        seldom if that brings none."""
        self.missed = missed = self.missed + 1
        if missed & (missed - 1) and missed % _EVERY:
            return False
        self.due = True
        return True

    def template(self, message: Buffer, recognized: MessageTemplate | None, *stated: Any) -> Template:
        """The template of ``message``, which ``recognized`` describes; the rest is as in ``Template``."""
        alike = [self.decoded] if recognized is None else self.sizes.get(len(message), ())
        for found in alike:
            if found is not None and found.model == stated[0] and found.fits(message):
                return found
        made = Template(recognized, *stated)
        if recognized is None:
            self.decoded = made
            return made
        alike = self.sizes.pop(recognized.size, [])
        if len(self.sizes) >= _MOST_SIZES:
            del self.sizes[next(iter(self.sizes))]
        self.sizes[recognized.size] = [made, *alike[: _MOST_ALIKE - 1]]
        return made

    def clear(self) -> None:
        """Recognize none."""
        self.sizes.clear()
        self.decoded = None


class HeadKinds(dict[Hashable, HeadKind]):
    """The kinds of a listener's requests, by key. Callers choose their heads: those that were not used lately
    leave, one at a time."""

    __slots__ = ()

    def put(self, key: Hashable, kind: HeadKind) -> None:
        """Keep ``kind`` with ``key``."""
        while len(self) >= _MOST_KINDS:
            oldest = next(iter(self))
            leaving = self.pop(oldest)
            if leaving.used:
                leaving.used = False
                self[oldest] = leaving  # it stays for another round
        self[key] = kind
