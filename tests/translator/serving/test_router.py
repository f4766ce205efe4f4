"""Which routes a request may take, and what a name with a version joined to it means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.target import Target
from interlingua.schemas import ErrorCode, InferenceError, ModelMetadata, ModelRef, Signature
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Conditions, RouteKey
from interlingua.translator.serving.routing.names import Names
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Split


class Model(Target):
    """A ``Target`` that tells its versions, and counts how often."""

    def __init__(self, name: str, *versions: str) -> None:
        self.name = name
        self.versions = versions
        self.asked = 0

    async def metadata(self, version: str = "") -> ModelMetadata:
        self.asked += 1
        return ModelMetadata(self.name, Signature((), ()), self.versions)


def route(to: str, **when: Any) -> Route:
    return Route(Split.only(to), Conditions(**when))


ROUTES = [
    route("resnet", model="res*", dialect="graphpipe"),
    route("gold", model="res*", parameters={"class": "gold"}),
    route("digits", model="res*", listener="127.0.0.1:1"),
    route("digits", model="res*", listener="127.0.0.1:1", version="2"),
    route("pinned", version="2"),
]
MODELS: Any = {name: Model(name) for name in ("digits", "resnet")}


def taken(model: str, dialect: str, listener: str, version: str = "") -> list[str]:
    found = Router(MODELS, ROUTES).candidates(RouteKey(model, dialect, listener, version))
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


NAMES = st.sampled_from(["digits", "resnet", "res", "other"])
SOME_ROUTES = st.lists(
    st.builds(
        Conditions,
        st.sampled_from(["*", "res*", "digits", "?es"]),
        st.sampled_from(["", "oip", "trtis"]),
        st.sampled_from(["", "a", "b"]),
        st.sampled_from([None, "", "1", "*"]),
        st.sampled_from([{}, {"x-tenant": "a*"}]),
        st.sampled_from([{}, {}, {"class": "gold"}]),
    ),
    max_size=6,
)
HEADS = st.builds(
    RouteKey,
    NAMES,
    st.sampled_from(["oip", "trtis", "grps"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "1", "2"]),
    st.sampled_from([{}, {"x-tenant": "acme"}, {"x-tenant": "other"}]),
)


@given(SOME_ROUTES, st.lists(HEADS, max_size=4))
def test_the_first_wins_whatever_the_routes(stated: list[Conditions], heads: list[RouteKey]) -> None:
    """Held against the conditions one by one, without what the router remembers of names."""
    routes = [Route(Split.only("m"), when) for when in stated]
    router = Router(MODELS, routes)
    for head in heads:
        fitting = [each for each in routes if each.when.names(head.model) and each.when.admits(head)]
        decided = next((place for place, each in enumerate(fitting, 1) if not each.when.parameters), None)
        assert router.candidates(head) == fitting[:decided]
        assert router.route(head) is (None if decided is None else fitting[decided - 1])


def test_any_number_of_names() -> None:
    router = Router(MODELS, ROUTES)
    for number in range(3000):
        assert router.candidates(RouteKey(f"model {number}", "oip", "a", "2")) == [ROUTES[-1]]
    assert len(router._named) <= 1024


def test_only_inference_takes_a_route_that_matches_parameters() -> None:
    router = Router(MODELS, ROUTES)
    found = router.route(RouteKey("resnet50", "oip", "127.0.0.1:1"))
    assert found is ROUTES[2]
    assert router.route(RouteKey("resnet50", "oip", "a")) is None


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(InferenceError, match="Request for unknown model: 'gone' is not found") as caught:
        Router(MODELS).target("gone", "3")
    assert caught.value.code is ErrorCode.NOT_FOUND


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
