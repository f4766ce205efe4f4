"""The notices that a process needs that starts now."""

from __future__ import annotations

from collections import OrderedDict

from interlingua.runtime.upstream.notices import Notice

_KEPT = 65536
"""A limit, because clients may start sequences and never end them."""


class NoticeLog:
    def __init__(self) -> None:
        self._last: OrderedDict[tuple[object, ...], Notice] = OrderedDict()

    @property
    def all(self) -> list[Notice]:
        """The latest of each kind and key."""
        return list(self._last.values())

    def add(self, notice: Notice) -> None:
        """Add a notice, and forget the one that it replaces."""
        key = notice[:3]
        self._last.pop(key, None)
        if notice.value is not None:
            self._last[key] = notice
            if len(self._last) > _KEPT:
                self._last.popitem(last=False)
