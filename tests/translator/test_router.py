from __future__ import annotations

from typing import Any

import pytest

from schemas import ErrorCode, InferenceError
from translator.router import Route, Router

MODELS: Any = {"digits": "here", "resnet": "there"}
ROUTES = [
    Route("resnet", model="res*", dialect="graphpipe"),
    Route("digits", model="res*", listener="127.0.0.1:1"),
    Route("gone", model="lost"),
]


@pytest.mark.parametrize(
    ("model", "dialect", "listener", "target"),
    [
        ("digits", "oip", "a", "here"),
        ("resnet50", "graphpipe", "127.0.0.1:1", "there"),
        ("resnet50", "oip", "127.0.0.1:1", "here"),
        ("resnet50", "oip", "a", None),
        ("resnet", "oip", "a", "there"),
        ("lost", "oip", "a", None),
        ("Digits", "oip", "a", None),
    ],
)
def test_the_first_route_that_matches_wins(
    model: str, dialect: str, listener: str, target: str | None
) -> None:
    router = Router(MODELS, ROUTES)
    assert router.models.get(router.name(model, dialect, listener)) == target
    if target is None:
        with pytest.raises(InferenceError, match="Request for unknown model: '.+' is not found") as caught:
            router.resolve(model, dialect, listener)
        assert caught.value.code is ErrorCode.NOT_FOUND
    else:
        assert router.resolve(model, dialect, listener) == target
