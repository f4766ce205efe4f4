from __future__ import annotations

import orjson

from interlingua.translator.admin.metrics import exposition
from interlingua.translator.serving.routing.conditions import Conditions, RouteKey
from interlingua.translator.serving.routing.report import families, reports
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Part, Split


def test_what_operators_see() -> None:
    routes = [
        Route(
            Split([Part("a", 3), Part("b"), Part("c", 0)], start=0),
            Conditions("m*", version="", headers={"x-tenant": "a*"}, parameters={"level": 1}),
            fallback="a",
        ),
        Route(Split.only("b")),
    ]
    for _ in range(4):
        routes[0].settled(RouteKey("m", "oip", ""), None)
    routes[0].counts.fallbacks += 1
    assert orjson.loads(orjson.dumps(reports(routes))) == [
        {
            "route": 1,
            "match": {
                "model": "m*",
                "version": "",
                "headers": {"x-tenant": "a*"},
                "parameters": {"level": 1},
            },
            "requests": 4,
            "to": [{"model": "a", "requests": 3}, {"model": "b", "requests": 1}],
            "fallback": "a",
            "fallbacks": 1,
        },
        {
            "route": 2,
            "match": {"model": "*"},
            "requests": 0,
            "to": [{"model": "b", "requests": 0}],
            "fallback": "",
            "fallbacks": 0,
        },
    ]
    lines = exposition(families(routes)).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'interlingua_route_requests_total{route="1",model="m*",to="a"} 3',
        'interlingua_route_requests_total{route="1",model="m*",to="b"} 1',
        'interlingua_route_requests_total{route="2",model="*",to="b"} 0',
        'interlingua_route_fallbacks_total{route="1",model="m*",to="a"} 1',
    ]
    assert not list(families([]))
