"""The operator's listener by itself: what it says before there is anything to show, and where it is told of."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest
import yaml

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.runtime.repository.files import Loaded
from interlingua.translator.admin.listener import STALLED_AFTER_SECS, AdminListener
from interlingua.translator.admin.metrics import Family
from interlingua.translator.assembly import assemble
from interlingua.translator.config import Config, parse
from interlingua.translator.config.context import Installation
from interlingua.translator.welcome import welcome

HTTP = frozenset({"http"})
INSTALLATION = Installation(serves={"oip": HTTP}, calls={"oip": HTTP}, backends={"identity": False})


def config() -> Config:
    text = yaml.safe_dump({"listeners": [{"listen": "127.0.0.1:0", "transport": "http"}]})
    return parse(text, "c.yaml", INSTALLATION)


async def test_first_it_says_that_models_are_loaded_and_then_what_there_is() -> None:
    assembly = assemble(config(), Loaded())
    async with AdminListener(parse_address("127.0.0.1:0")) as listener, aiohttp.ClientSession() as client:
        assert listener.address is not None and listener.address.port

        async def ask(path: str) -> tuple[int, str]:
            async with client.get(f"http://{listener.address}{path}") as answer:
                return answer.status, await answer.text()

        status, text = await ask("/health/live")
        live = json.loads(text)
        assert (status, live.keys(), live["live"]) == (200, {"live", "stalled_secs"}, True)
        assert 0 <= live["stalled_secs"] < STALLED_AFTER_SECS
        assert await ask("/metrics") == (503, "models are being loaded\n")
        status, text = await ask("/health/ready")
        assert status == 503 and "models are being loaded" in text
        assert (await ask("/models"))[0] == 404
        listener.show(assembly.site())
        status, text = await ask("/health/ready")
        assert status == 503 and "the server has no model" in text
        assert (await ask("/metrics"))[0] == 200
        assert await ask("/models") == (200, "{}\n")
        assembly.service.leave()
        assert (await ask("/health/live"))[0] == 200
    await assembly.close()


async def test_a_failing_page_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[Family]:
        raise RuntimeError("secret")

    assembly = assemble(config(), Loaded())
    assembly.sources.metrics.append(broken)
    async with AdminListener(parse_address("127.0.0.1:0")) as listener, aiohttp.ClientSession() as client:
        listener.show(assembly.site())
        for path, status in (("/metrics", 500), ("/health/live", 200)):
            async with client.get(f"http://{listener.address}{path}") as answer:
                assert answer.status == status
                assert "secret" not in await answer.text()
    assert "secret" in caplog.text
    await assembly.close()


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with AdminListener(parse_address(f"unix:{path}")):
        connector = aiohttp.UnixConnector(str(path))
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.get("http://localhost/health/live") as answer,
        ):
            assert answer.status == 200
    assert not path.exists()


async def test_without_an_address_there_is_nothing() -> None:
    assembly = assemble(config(), Loaded())
    async with AdminListener(None) as listener:
        listener.show(assembly.site())
        assert listener.address is None
    await assembly.close()


@pytest.mark.parametrize(
    ("operators", "told"),
    [
        (None, []),
        (
            Address("127.0.0.1", 8002),
            ["127.0.0.1:8002", "http://127.0.0.1:8002/", "http://127.0.0.1:8002/metrics"],
        ),
        (Address("", 0, "run/a.sock"), ["unix:run/a.sock"]),
    ],
)
def test_the_welcome_tells_where_it_is(operators: Address | None, told: list[str]) -> None:
    options = config()
    listening = [(options.listeners[0], Address("127.0.0.1", 8000))]
    text = welcome(options, listening, operators)
    assert text.startswith("interlingua is serving.\n")
    assert ("operators" in text) is bool(told)
    assert all(part in text for part in told)
    assert ("for Prometheus" in text) is (len(told) > 1)
