"""Replaces what the paths of handlers do, where transports get them. A compiled build calls the methods of its
own classes directly: to replace one in its class would change nothing there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from interlingua.translator.serving.handler import TransportPipeline

FAST = "fast_path", "begin"
INLINE = "inline_path", "answer"
"""What finds the paths of a kind, and their only method that transports call."""


def replace(monkeypatch: pytest.MonkeyPatch, kind: tuple[str, str], spied: Callable[..., Any]) -> None:
    """Have transports call ``spied`` with the path and the arguments, in place of its method."""
    finder, method = kind
    find = getattr(TransportPipeline, finder)

    def found(pipeline: TransportPipeline, request: Any) -> Any:
        path = find(pipeline, request)
        if path is None:
            return None
        facts = {name: getattr(path, name) for name in ("lead", "size") if hasattr(path, name)}
        return SimpleNamespace(**facts, **{method: partial(spied, path)})

    monkeypatch.setattr(TransportPipeline, finder, found)


def record(
    monkeypatch: pytest.MonkeyPatch, kind: tuple[str, str], noted: Callable[[Any, Any], Any]
) -> list[Any]:
    """What ``noted`` returns for each request that is offered to a path from now on: for that, and its
    result."""
    found: list[Any] = []

    def recorded(path: Any, *arguments: Any) -> Any:
        result = getattr(path, kind[1])(*arguments)
        found.append(noted(path, result))
        return result

    replace(monkeypatch, kind, recorded)
    return found
