"""Which routes a request may take, and what a name with a version joined to it means."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import ErrorCode, InferenceError, ModelMetadata, ModelRef, Signature
from translator.router import Router
from translator.routing.conditions import Conditions, Head
from translator.routing.names import Names
from translator.routing.route import Route
from translator.routing.split import Split


def route(to: str, **when: Any) -> Route:
    return Route(Split.only(to), Conditions(**when))


ROUTES = [
    route("resnet", model="res*", dialect="graphpipe"),
    route("gold", model="res*", parameters={"class": "gold"}),
    route("digits", model="res*", listener="127.0.0.1:1"),
    route("digits", model="res*", listener="127.0.0.1:1", version="2"),
    route("pinned", version="2"),
]
MODELS: Any = {"digits": "here", "resnet": "there"}


def taken(model: str, dialect: str, listener: str, version: str = "") -> list[str]:
    found = Router(MODELS, ROUTES).candidates(Head(model, dialect, listener, version))
    return [each.to.used[0] for each in found]


@pytest.mark.parametrize(
    ("asked", "candidates"),
    [
        (("digits", "oip", "a"), []),
        (("resnet50", "graphpipe", "127.0.0.1:1"), ["resnet"]),
        (("resnet50", "oip", "127.0.0.1:1"), ["gold", "digits"]),
        (("resnet50", "oip", "127.0.0.1:1", "2"), ["gold", "digits"]),
        (("resnet50", "oip", "a"), ["gold"]),
        (("resnet50", "oip", "a", "2"), ["gold", "pinned"]),
        (("Resnet50", "oip", "127.0.0.1:1"), []),
    ],
)
def test_the_first_route_that_matches_wins(asked: Any, candidates: list[str]) -> None:
    assert taken(*asked) == candidates


def test_what_is_no_inference_takes_no_route_that_asks_for_parameters() -> None:
    router = Router(MODELS, ROUTES)
    found = router.route(Head("resnet50", "oip", "127.0.0.1:1"))
    assert found is ROUTES[2]
    assert router.route(Head("resnet50", "oip", "a")) is None


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(InferenceError, match="Request for unknown model: 'gone' is not found") as caught:
        Router(MODELS).target("gone", "3")
    assert caught.value.code is ErrorCode.NOT_FOUND


class Model:
    """A ``Target`` that tells its versions, and counts how often."""

    def __init__(self, name: str, *versions: str) -> None:
        self.name = name
        self.versions = versions
        self.asked = 0

    async def metadata(self, version: str = "") -> ModelMetadata:
        self.asked += 1
        return ModelMetadata(self.name, Signature((), ()), self.versions)


async def test_a_name_with_a_version_joined_to_it() -> None:
    model = Model("m", "3", "5")
    alias = Route(Split.only("m"), Conditions("alias"), Names(versions={"1": "3"}))
    router = Router({"m": model}, [alias, route("m", model="whole-5"), route("m", model="wild*")])  # type: ignore[dict-item]
    for text, named in {
        "alias": ModelRef("alias"),
        "alias-1": ModelRef("alias", "1"),
        "alias-3": ModelRef("alias", "3"),
        "alias-7": ModelRef("alias-7"),
        "alias-5": ModelRef("alias", "5"),
        "whole-5": ModelRef("whole-5"),
        "wild-5": ModelRef("wild-5"),
        "m-5": ModelRef("m", "5"),
    }.items():
        assert await router.joined(text) == named, text
    before = model.asked
    assert await router.joined("alias-1") == ModelRef("alias", "1")
    assert model.asked == before, "asked for once"
