"""Models that would ask themselves in the end, by way of the server's own listeners."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlingua.translator.config import ConfigError, parse

SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
}


def reported(
    models: dict[str, Any], routes: Any = (), url: str = "127.0.0.1:8000", **listener: Any
) -> list[str]:
    """What is said of ``models`` behind the upstream ``me``, which is at ``url``."""
    document = {
        "listeners": [{"listen": "127.0.0.1:8000", "transport": "http", **listener}],
        "upstreams": {"me": {"dialect": "oip", "transport": "http", "urls": ["10.0.0.1:80", url]}},
        "models": {
            "here": {"backend": "identity", "signature": SIGNATURE},
            **{name: {"upstream": "me", **options} for name, options in models.items()},
        },
        "routes": list(routes),
    }
    try:
        parse(json.dumps(document), "c.yaml")
    except ConfigError as error:
        return [line.split(": ", 2)[2] for line in error.lines]
    return []


ENDLESS = "loops through this server's own listeners: "


@pytest.mark.parametrize(
    ("models", "routes", "more", "says"),
    [
        ({"m": {}}, [], {}, ["'m' -> 'm'"]),
        ({"m": {"remote_model": "here"}}, [], {}, []),
        ({"m": {}}, [], {"url": "127.0.0.1:8001"}, []),
        ({"m": {}}, [], {"url": "10.0.0.2:8000"}, []),
        ({"m": {}}, [], {"url": "http://localhost:8000"}, ["'m' -> 'm'"]),
        ({"m": {}}, [], {"url": "http://localhost:8000/base"}, []),
        ({"m": {}}, [], {"listen": ":8000", "url": "[::1]:8000"}, ["'m' -> 'm'"]),
        ({"m": {}}, [], {"listen": "unix:run/x", "url": "unix:run/x"}, ["'m' -> 'm'"]),
        ({"m": {}}, [], {"listen": "unix:run/y", "url": "unix:run/x"}, []),
        ({"m": {}}, [], {"listen": ":0"}, []),
        ({"m": {}}, [], {"dialects": ["trtis"]}, []),
        ({"m": {"remote_model": ""}}, [], {"default_model": "m"}, ["'m' -> 'm'"]),
        ({"a": {"remote_model": "b"}, "b": {"remote_model": "a"}}, [], {}, ["'a' -> 'b' -> 'a'"]),
        ({"a": {"remote_model": "b"}, "b": {}}, [], {}, ["'b' -> 'b'"]),
        ({"m": {}}, [{"match": {"model": "m"}, "to": "here"}], {}, []),
        ({"m": {}}, [{"match": {"model": "m", "headers": {"x": "*"}}, "to": "here"}], {}, ["'m' -> 'm'"]),
        ({"m": {}}, [{"match": {"model": "m", "parameters": {"x": 1}}, "to": "here"}], {}, ["'m' -> 'm'"]),
        ({"m": {"remote_model": "here"}}, [{"to": "m"}], {}, ["'m' -> 'm'"]),
        ({"m": {"remote_model": "here"}}, [{"to": "here", "fallback": "m"}], {}, ["'m' -> 'm'"]),
        ({"m": {}}, [{"split": [{"to": "here"}, {"to": "m", "weight": 0}]}], {}, []),
        ({"m": {}}, [{"split": [{"to": "here"}, {"to": "m"}]}], {}, ["'m' -> 'm'"]),
    ],
)  # fmt: skip
def test_models_that_ask_themselves(models: Any, routes: Any, more: Any, says: list[str]) -> None:
    assert reported(models, routes, **more) == [ENDLESS + way for way in says]
