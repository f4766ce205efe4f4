"""The models of an upstream that clients of this server have unloaded there."""

from __future__ import annotations

from collections.abc import Callable

from interlingua.schemas import ModelStatus


class UnloadedModels:
    """By the upstream's names, as far as known, with the status before. ``notify`` has the other processes of
    the server know of a change, ``controlled`` are called with the name of a model that one of them has
    loaded or unloaded."""

    def __init__(self) -> None:
        self.notify: Callable[[str, ModelStatus | None], None] | None = None
        self.controlled: list[Callable[[str], None]] = []
        self._last: dict[str, ModelStatus] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._last

    def status(self, name: str) -> ModelStatus:
        """The status of an unloaded model before."""
        return self._last[name]

    def add(self, name: str, last: ModelStatus) -> None:
        """A client has unloaded ``name``."""
        self._last[name] = last
        if self.notify is not None:
            self.notify(name, last)

    def loaded(self, name: str) -> None:
        """A client has loaded ``name``."""
        self._last.pop(name, None)
        if self.notify is not None:
            self.notify(name, None)

    def found(self, name: str) -> None:
        """The upstream reports ``name`` as ready."""
        if self._last.pop(name, None) is not None and self.notify is not None:
            self.notify(name, None)

    def take(self, name: str, last: ModelStatus | None) -> None:
        """As another process reports."""
        if last is None:
            self._last.pop(name, None)
        else:
            self._last[name] = last
        for each in self.controlled:
            each(name)
