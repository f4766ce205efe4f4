"""What differs between two configurations."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlingua.translator.config import Config, parse
from interlingua.translator.reload.differences import (
    LIVE,
    Difference,
    conditions,
    differences,
    needing_restart,
    pairs,
)
from interlingua.translator.reload.outcome import ReloadOutcome, lines

SIGNATURE = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}
MODEL = {"backend": "identity", "signature": {**SIGNATURE, "outputs": SIGNATURE["inputs"]}}
HTTP = {"listen": "127.0.0.1:0", "transport": "http"}
UPSTREAM = {"dialect": "oip", "transport": "http", "urls": ["127.0.0.1:9"]}


def config(**sections: Any) -> Config:
    return parse(yaml.safe_dump({"listeners": [HTTP], "models": {"m": MODEL}, **sections}))


def found(before: Config, after: Config) -> dict[str, Difference]:
    return {kind: each for kind, each in differences(before, after).items() if each}


ROUTE = {"match": {"model": "a*"}, "to": "m"}
TAP = {"path": "/tmp/never-opened.rec"}


@pytest.mark.parametrize(
    ("sections", "kind", "expected"),
    [
        ({"models": {"n": MODEL}}, "models", Difference(["n"], ["m"])),
        ({"upstreams": {"u": UPSTREAM}}, "upstreams", Difference(["u"])),
        ({"routes": [ROUTE]}, "routes", Difference(["model=a*"])),
        ({"tap": TAP}, "tap", Difference([TAP["path"]])),
        (
            {"server": {"max_inflight_bytes": 1}},
            "options",
            Difference(changed={"server.max_inflight_bytes": []}),
        ),
        ({"default_model": "m"}, "options", Difference(changed={"default_model": []})),
        (
            {"listeners": [{**HTTP, "max_connections": 7}]},
            "listeners",
            Difference(changed={HTTP["listen"]: ["max_connections"]}),
        ),
    ],
)
def test_each_kind_of_section(sections: dict[str, Any], kind: str, expected: Difference) -> None:
    assert found(config(), config(**sections)) == {kind: expected}
    assert found(config(**sections), config(**sections)) == {}
    backwards = found(config(**sections), config())[kind]
    assert (backwards.added, backwards.removed) == (expected.removed, expected.added)
    assert backwards.changed.keys() == expected.changed.keys()


def test_routes_of_equal_conditions_are_told_apart_by_number() -> None:
    before = config(routes=[ROUTE, ROUTE])
    after = config(routes=[ROUTE, {**ROUTE, "timeout_secs": 1.0}])
    assert found(before, after)["routes"].changed == {"model=a* (2)": ["timeout_secs"]}
    assert conditions(config(routes=[{"match": {}, "to": "m"}]).routes[0]) == "model=*"


def test_listeners_of_port_0_pair_by_equality_first() -> None:
    grpc = {**HTTP, "transport": "grpc"}
    before = config(listeners=[HTTP, grpc]).listeners
    assert pairs(before, config(listeners=[grpc, HTTP]).listeners) == [(1, 0), (0, 1)]
    changed = {**HTTP, "max_connections": 7}
    assert pairs(before, config(listeners=[grpc, changed]).listeners) == [(1, 0), (0, 1)]
    both = [{**grpc, "max_connections": 7}, changed]
    assert pairs(before, config(listeners=both).listeners) == [(1, 0), (0, 1)]
    assert pairs(before, config(listeners=[{**HTTP, "listen": "127.0.0.1:9"}]).listeners) == [
        (None, 0),
        (0, None),
        (1, None),
    ]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("127.0.0.1:9", "localhost:9", True),
        ("[::1]:9", "[0:0::0:1]:9", True),
        ("unix:run/a.sock", f"unix:{Path('run/a.sock').absolute()}", True),
        ("127.0.0.1:9", "localhost:8", False),
        ("0.0.0.0:9", "127.0.0.1:9", False),
        ("0.0.0.0:9", "[::]:9", False),
        ("127.0.0.1:9", "unix:run/a.sock", False),
        ("127.0.0.1:9", "unknown.invalid:9", False),
    ],
)
def test_one_address_has_several_spellings(
    before: str, after: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(host: str, port: int, **options: Any) -> Any:
        numbers = {"localhost": "127.0.0.1", "0:0::0:1": "::1"}
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (numbers.get(host, host), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    old, new = ({**HTTP, "listen": each} for each in (before, after))
    changed = differences(config(listeners=[old]), config(listeners=[new]))["listeners"]
    assert changed == (Difference(changed={after: ["listen"]}) if same else Difference([after], [before]))


def test_every_interface_has_several_spellings(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (config(listeners=[{**HTTP, "listen": each}]).listeners for each in (":9", "0.0.0.0:9"))
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert pairs(old, new) == [(0, 0)]
    # a socket of both families would go on to take clients over IPv6
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    assert pairs(old, new) == [(None, 0), (0, None)]


def test_options_that_need_a_restart() -> None:
    admin = {"listen": "127.0.0.1:0"}
    assert needing_restart(config(), config(admin=admin)) == ["admin"]
    assert needing_restart(config(admin=admin), config(admin={**admin, "hosts": ["x"]})) == ["admin.hosts"]
    assert needing_restart(config(), config(server={"workers": 1, "max_models": 5})) == ["server.workers"]
    library = {**HTTP, "transport": "grpc", "engine": "library"}
    changed = {**library, "max_connections": 7}
    assert needing_restart(config(listeners=[library]), config(listeners=[changed])) == [
        f"listener {HTTP['listen']} with engine: library"
    ]
    assert type(config().server).model_fields.keys() >= LIVE


def test_the_answer_in_words() -> None:
    changes = {"models": Difference(["a"], ["b"], {"c": ["files"], "d": []}), "routes": Difference()}
    outcome = ReloadOutcome(changes)
    assert list(lines(outcome.document())) == [
        "reloaded",
        "models: added a, removed b, changed c (files), changed d",
    ]
    assert outcome.facts() == {"models": "added a, removed b, changed c (files), changed d"}
    assert list(lines(ReloadOutcome().document())) == ["reloaded; nothing has changed"]
    refused = ReloadOutcome(errors=("one", "two"))
    assert list(lines(refused.document())) == ["refused; everything is as it was", "one", "two"]
