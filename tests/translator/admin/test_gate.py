"""Who may read the pages of the admin address, and under which host names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from interlingua.protocols.wire import HttpRequest, parts_of
from interlingua.schemas import Context
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.grants import read_grants
from interlingua.translator.access.hosts import PermittedHosts
from interlingua.translator.admin.gate import AdminGate
from interlingua.translator.admin.handler import AdminHandler, plain
from interlingua.translator.config import Config, parse

PATHS = ("/", "/metrics", "/models", "/health/live", "/nothing")


def status(gate: AdminGate, path: str, peer: str = "127.0.0.1", **headers: str) -> int:
    async def fine() -> Any:
        return plain(200, "fine")

    async def ask() -> int:
        handler = AdminHandler(dict.fromkeys(PATHS[:-1], fine), gate)
        request = HttpRequest("GET", path, headers=headers, context=Context(peer=peer, headers=headers))
        answer = handler.head(request) or await handler.serve(request)
        assert b"/metrics" not in b"".join(parts_of(answer)) or answer.status == 404
        return answer.status

    return asyncio.run(ask())


def statuses(gate: AdminGate, **sent: str) -> list[int]:
    return [status(gate, path, **sent) for path in PATHS]


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:8002",
        "metrics.localhost",
        "127.0.0.1:8002",
        "127.9.9.9",
        "10.1.2.3:8002",
        "[::1]:8002",
        "[2001:db8::1]",
        "gpu-node:8002",
        "metrics.example.org",
        "Metrics.Example.Org.:8002",
    ],
)
def test_permitted_hosts(host: str) -> None:
    gate = AdminGate(hosts=PermittedHosts(["metrics.example.org"]))
    assert statuses(gate, host=host) == [200, 200, 200, 200, 404]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8002",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "1.2.3.4.5",
        "x.metrics.example.org",
        "metrics.example.org.evil.example",
        "evil.example#localhost",
        "127.0.0.1@evil.example",
    ],
)
def test_rebound_hosts(host: str) -> None:
    gate = AdminGate(hosts=PermittedHosts(["metrics.example.org"]))
    assert statuses(gate, host=host) == [421, 421, 421, 200, 421]
    assert statuses(AdminGate(hosts=PermittedHosts(["*"])), host=host) == [200, 200, 200, 200, 404]


def test_pages_by_class() -> None:
    gate = AdminGate(Authorization("0.0.0.0:8002", read_grants({"statistics": ["local", "10.0.0.0/8"]})))
    assert statuses(gate, peer="10.1.2.3") == statuses(gate) == [200, 200, 200, 200, 404]
    assert statuses(gate, peer="192.168.1.1") == [403, 403, 403, 200, 403]
    assert statuses(AdminGate(), peer="192.168.1.1") == [200, 200, 200, 200, 404]
    closed = AdminGate(Authorization("0.0.0.0:8002", read_grants({"health": []})))
    assert statuses(closed) == [200, 200, 200, 403, 404]


def configured(**admin: Any) -> Config:
    listeners = [{"listen": "127.0.0.1:0", "transport": "http"}]
    return parse(yaml.safe_dump({"listeners": listeners, "admin": {"listen": ":8002", **admin}}))


def test_options() -> None:
    config = configured(allow={"statistics": ["local"]}, hosts=["metrics.example.org"])
    assert config.admin is not None
    assert config.admin.allow == {"statistics": ("local",)}
    assert config.admin.hosts == ("metrics.example.org",)
