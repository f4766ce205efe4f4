"""The settings of traces, under Triton's names, and the sampling by them.

Clients read and change them while the server runs (Triton's trace extension), for the server or for one
model. Without ``tracing`` in the configuration nothing is traced: the settings exist for clients that set
them before they measure. Clients cannot choose the path of a file, nor the mode.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from interlingua.schemas import ErrorCode, InferenceError, TraceSettings

_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS", "MIN", "MAX")
_DEFAULTS: TraceSettings = {
    "trace_level": ("OFF",),
    "trace_rate": ("1000",),
    "trace_count": ("-1",),
    "log_frequency": ("0",),
    "trace_file": ("",),
    "trace_mode": ("triton",),
}
_OF_A_FILE = frozenset({"log_frequency", "trace_file"})
"""Settings that answers omit in the mode ``opentelemetry``, as Triton's do."""

_LOWEST = {"trace_rate": 0, "trace_count": -1, "log_frequency": 0}
"""The least values of numeric settings."""

_INTEGER = re.compile("-?[0-9]{1,10}")
_LARGEST = 2**32 - 1


@dataclass(slots=True)
class Sampling:
    """Which requests are sampled: none unless ``on``; ``left`` more at most, -1 for no limit; of those whose
    caller does not decide one in ``rate``, or a ``share`` of them if ``rate`` is 0."""

    on: bool
    rate: int
    left: int
    share: float = 0.0
    _seen: int = 0

    def takes(self, sampled_by_caller: bool | None) -> bool:
        """Whether to sample one more request; None if its caller does not decide."""
        if not self.on or not self.left or sampled_by_caller is False:
            return False
        if sampled_by_caller is None:
            self._seen += 1
            if self._seen % self.rate if self.rate else random.random() >= self.share:  # noqa: S311
                return False
        if self.left > 0:
            self.left -= 1
        return True


class TraceBook:
    """With ``share``, that of the configuration, the mode is ``opentelemetry``; ``more`` are its read-only
    settings."""

    def __init__(self, share: float | None = None, more: TraceSettings | None = None) -> None:
        self._share = share
        self._defaults = dict(_DEFAULTS)
        if share is not None:
            self._defaults |= {
                "trace_level": ("TIMESTAMPS",),
                "trace_rate": (str(round(1 / share) if share else 0),),
                "trace_mode": ("opentelemetry",),
                **(more or {}),
            }
        self._number, self._processes = 0, 1
        self._server: dict[str, tuple[str, ...]] = {}
        self._models: dict[str, dict[str, tuple[str, ...]]] = {}
        self._sampling: dict[str, Sampling] = {"": self._new_sampling({})}

    def divide(self, number: int, processes: int) -> None:
        """This is process ``number`` of so many with the same settings, which divide a count."""
        self._number, self._processes = number, processes
        self._renew("")

    def left(self) -> dict[str, int]:
        """What this process may still sample of a limited count, by the model, or of the server."""
        return {model: each.left for model, each in self._sampling.items() if each.left >= 0}

    def settings(self, model: str = "", left: Mapping[str, int] | None = None) -> TraceSettings:
        """The settings of ``model``, or of the server. The count is what is ``left`` of it, in all processes
        together if that is given."""
        found = {**self._defaults, **self._server, **self._models.get(model, {})}
        if self._share is None:
            return found
        left = self.left() if left is None else left
        found["trace_count"] = (str(left.get(model if model in self._models else "", -1)),)
        return {name: values for name, values in found.items() if name not in _OF_A_FILE}

    def change(self, model: str, changes: TraceSettings) -> None:
        """Set all of ``changes``, or none. An empty value resets a setting: a model's to the server's, the
        server's to the default. Unknown names are ignored, as by Triton. Raises INVALID_TENSOR naming the
        setting, UNSUPPORTED for the file."""
        known = {name: values for name, values in changes.items() if name in _DEFAULTS}
        for name, values in known.items():
            if values or name == "trace_file":
                _check(name, values)
        held = self._models.setdefault(model, {}) if model else self._server
        for name, values in known.items():
            # fixed when the server starts
            if name == "trace_mode":
                continue
            if values:
                held[name] = values
            else:
                held.pop(name, None)
        if not held and model:
            del self._models[model]
        self._renew(model)

    def takes(self, model: str, sampled_by_caller: bool | None) -> bool:
        """Whether to sample a request to ``model``. ``sampled_by_caller``: what its caller has decided, None
        if it has not."""
        return self._of(model).takes(sampled_by_caller)

    def _of(self, model: str) -> Sampling:
        return self._sampling.get(model) or self._sampling[""]

    def _renew(self, model: str) -> None:
        """The settings of ``model`` have changed, or those of the server, on which those of models depend. As
        in Triton, counts begin again."""
        if model:
            self._sampling.pop(model, None)
        else:
            self._sampling = {"": self._new_sampling(self._server)}
        for name in [model] if model in self._models else [] if model else self._models:
            self._sampling[name] = self._new_sampling({**self._server, **self._models[name]})

    def _new_sampling(self, stated: TraceSettings) -> Sampling:
        level, count = stated.get("trace_level"), int(stated.get("trace_count", ("-1",))[0])
        on = self._share is not None and (level is None or level != ("OFF",))
        if count > 0:
            count = count // self._processes + (self._number < count % self._processes)
        rate = stated.get("trace_rate")
        if rate is None:
            return Sampling(on, 0, count, self._share or 0.0)
        return Sampling(on, int(rate[0]), count)


def _check(name: str, values: tuple[str, ...]) -> None:
    if name == "trace_file":
        raise InferenceError(
            ErrorCode.UNSUPPORTED, "trace file location can not be updated through network protocol"
        )
    if name == "trace_level":
        for level in values:
            if level not in _LEVELS:
                refuse(f"setting 'trace_level' must be {either(_LEVELS)}, got '{level[:40]}'")
        if "OFF" in values and len(values) > 1:
            refuse("Expect only one trace level 'OFF' is specified")
    elif len(values) != 1:
        refuse(f"setting '{name}' must have one value, got {len(values)}")
    elif name in _LOWEST:
        (text,) = values
        if not _INTEGER.fullmatch(text) or not _LOWEST[name] <= int(text) <= _LARGEST:
            refuse(
                f"setting '{name}' must be an integer from {_LOWEST[name]} to {_LARGEST}, got '{text[:40]}'"
            )


def either(words: Iterable[str]) -> str:
    return " or ".join(f"'{word}'" for word in words)


def refuse(message: str) -> NoReturn:
    raise InferenceError(ErrorCode.INVALID_TENSOR, message)
