from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from interlingua.schemas import InferRequest
from interlingua.translator.serving.routing.conditions import Conditions, RouteKey


@pytest.mark.parametrize(
    ("stated", "head", "holds"),
    [
        ({}, {}, True),
        ({"model": "res*"}, {"model": "resnet"}, True),
        ({"model": "res*"}, {"model": "Resnet"}, False),
        ({"model": "res[nm]et?"}, {"model": "resnet5"}, True),
        ({"model": "resnet"}, {"model": "resnet5"}, False),
        ({"dialect": "oip"}, {"dialect": "trtis"}, False),
        ({"listener": ":80"}, {"listener": ":80"}, True),
        ({"version": ""}, {}, True),
        ({"version": ""}, {"version": "1"}, False),
        ({"version": "1*"}, {"version": "12"}, True),
        ({"version": "1*"}, {}, False),
        ({"headers": {"X-Tenant": "a*"}}, {"headers": {"x-tenant": "acme"}}, True),
        ({"headers": {"x-tenant": "a*"}}, {"headers": CIMultiDict({"X-Tenant": "acme"})}, True),
        ({"headers": {"x-tenant": "a*"}}, {"headers": {"x-tenant": "Acme"}}, False),
        ({"headers": {"x-tenant": "*"}}, {"headers": {"x-other": "acme"}}, False),
        ({"headers": {"x-tenant": "*", "x-user": "me"}}, {"headers": {"x-tenant": "a"}}, False),
    ],
)
def test_heads(stated: dict[str, Any], head: dict[str, Any], holds: bool) -> None:
    when, asked = Conditions(**stated), RouteKey(**{"model": "m", "dialect": "oip", "listener": "", **head})
    assert (when.names(asked.model) and when.admits(asked)) is holds


@pytest.mark.parametrize(
    ("stated", "given", "holds"),
    [
        ({"class": "gold"}, {"class": "gold", "more": 1}, True),
        ({"class": "g*"}, {"class": "gold"}, True),
        ({"class": "gold"}, {}, False),
        ({"class": "gold"}, {"class": 1}, False),
        ({"level": 1}, {"level": 1}, True),
        ({"level": 1}, {"level": True}, False),
        ({"level": 1}, {"level": 1.0}, False),
        ({"level": "1"}, {"level": 1}, False),
        ({"fast": True}, {"fast": True}, True),
        ({"class": "gold", "level": 1}, {"class": "gold"}, False),
    ],
)
def test_parameters(stated: Any, given: Any, holds: bool) -> None:
    assert Conditions(parameters=stated).accepts(InferRequest("m", (), parameters=given)) is holds


def test_a_glob_is_no_name() -> None:
    assert Conditions("resnet").literal == "resnet"
    assert [Conditions(glob).literal for glob in ("*", "r?", "r[a]")] == ["", "", ""]
