from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from interlingua.protocols.dialect import HttpEndpoint
from interlingua.protocols.path_table import CollisionError, PathTable


def endpoint(method: str, path: str) -> HttpEndpoint:
    def unused(*_: Any) -> Any:
        raise AssertionError

    return HttpEndpoint(method, path, unused, unused)


INDEX = endpoint("GET", "/v2/models/stats")
MODEL = endpoint("GET", "/v2/models/{model}")
INFER = endpoint("POST", "/v2/models/{model}/infer")
VERSION = endpoint("POST", "/v2/models/{model}/versions/{version}/infer")
ROOT = endpoint("GET", "/")
V1_MODEL = endpoint("GET", "/v1/models/{model}")
PREDICT = endpoint("POST", "/v1/models/{model}:predict")
EXPLAIN = endpoint("POST", "/v1/models/{model}/versions/{version}:explain")
LONGER = endpoint("POST", "/v1/models/{model}:very:predict")
TABLE = PathTable([INDEX, MODEL, INFER, VERSION, ROOT, V1_MODEL, PREDICT, EXPLAIN, LONGER])


@pytest.mark.parametrize(
    ("path", "found", "params"),
    [
        ("/v2/models/m", MODEL, {"model": "m"}),
        ("/v2/models/stats", INDEX, {}),
        ("/v2/models/stats/infer", INFER, {"model": "stats"}),
        ("/v2/models/m/versions/1/infer", VERSION, {"model": "m", "version": "1"}),
        ("/v2/models/a%2Fb", MODEL, {"model": "a%2Fb"}),
        ("/", ROOT, {}),
        ("/v1/models/m", V1_MODEL, {"model": "m"}),
        ("/v1/models/m:predict", PREDICT, {"model": "m"}),
        ("/v1/models/a:b:predict", PREDICT, {"model": "a:b"}),
        ("/v1/models/m:very:predict", LONGER, {"model": "m"}),
        ("/v1/models/m:other", V1_MODEL, {"model": "m:other"}),
        ("/v1/models/:predict", V1_MODEL, {"model": ":predict"}),
        ("/v1/models/m:predict/versions/3:explain", EXPLAIN, {"model": "m:predict", "version": "3"}),
    ],
)
def test_paths_that_exist(path: str, found: HttpEndpoint, params: dict[str, str]) -> None:
    methods, values = TABLE.find(path)
    assert methods == {found.method: found}
    assert values == params


@pytest.mark.parametrize(
    ("path", "found", "params"),
    [
        ("/v1/models/m:predict", PREDICT, {"model": "m"}),
        ("/V1/Models/Mm:PREDICT", PREDICT, {"model": "Mm"}),
        ("/v1/MODELS/M:Other", V1_MODEL, {"model": "M:Other"}),
        ("/v2/models/M", MODEL, {"model": "M"}),
        ("/V2/models/m", None, {}),
    ],
)
def test_the_case_of_literals_where_an_endpoint_allows_any(
    path: str, found: HttpEndpoint | None, params: dict[str, str]
) -> None:
    any_case = [replace(each, any_case=True) for each in (V1_MODEL, PREDICT)]
    methods, values = PathTable([*any_case, MODEL]).find(path)
    assert [each.path for each in methods.values()] == ([found.path] if found else [])
    assert values == params


@pytest.mark.parametrize(
    "path", ["", "v2/models/m", "/v2", "/v2/models/", "/v2/models//infer", "/v2/models/m/"]
)
def test_paths_that_do_not(path: str) -> None:
    assert TABLE.find(path) == ({}, {})


def test_a_star_takes_the_rest() -> None:
    everything = endpoint("*", "*")
    table = PathTable([MODEL, everything])
    assert table.find("/v2/models/m")[0] == {"GET": MODEL}
    assert table.find("/what/ever")[0] == {"*": everything}


def test_long_paths_are_found_and_not_remembered() -> None:
    TABLE.find("/v2/models/m")
    tracemalloc.start()
    try:
        for number in range(200):
            name = f"{number}{'m' * 10_000}"
            assert TABLE.find(f"/v2/models/{name}") == (TABLE.find("/v2/models/m")[0], {"model": name})
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_the_same_endpoint_twice_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="GET /v2/models"):
        PathTable([MODEL, endpoint("GET", "/v2/models/{name}")])


def test_of_a_page_and_another_endpoint_the_table_has_the_page() -> None:
    page = replace(endpoint("GET", "/"), page=True)
    for both in ([ROOT, page], [page, ROOT]):
        table = PathTable(both)
        assert table.find("/")[0] == {"GET": page}
        assert table.without_html == {page: ROOT}
    other = endpoint("GET", "/")
    for three in ([ROOT, page, other], [page, ROOT, other]):
        with pytest.raises(CollisionError) as raised:
            PathTable(three)
        assert raised.value.endpoints == (ROOT, other)
    with pytest.raises(CollisionError):
        PathTable([page, replace(page)])


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "v1/models", "/v1/{model", "/v1/model}", "/v1/{}", "/v1/{a}{b}", "/v1/pre{model}", "/v1/{a b}"),
        *("/v1/*", "/v1/{model}:*", "/v1/{model}/{model}"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_a_mistake(pattern: str) -> None:
    with pytest.raises(ValueError, match="path pattern"):
        PathTable([endpoint("GET", pattern)])
