"""What ``check --probe`` says of models on a server whose flavor describes none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import yaml

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.probe.upstreams import probe

TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
SIGNATURE = {"inputs": TENSORS, "outputs": TENSORS}


@pytest.fixture
async def kserve() -> AsyncIterator[str]:
    listener = {
        "listen": "127.0.0.1:0",
        "transport": "http",
        "dialects": ["tfserving"],
        "flavors": {"tfserving": "kserve"},
    }
    model = {"backend": "identity", "signature": SIGNATURE}
    options = parse(yaml.safe_dump({"listeners": [listener], "models": {"m": model}}))
    assembly = assemble(options, load_local(options))
    (listening,) = options.listeners
    server = HttpServer(assembly.pipeline(listening).handlers["http"], parse_address(listening.listen))
    address = await server.start()
    yield f"{address.host}:{address.port}"
    await server.stop(0)
    await assembly.close()


@pytest.mark.parametrize("flavor", ["auto", "kserve"])
async def test_a_server_of_kserve(kserve: str, flavor: str) -> None:
    there = {"dialect": "tfserving", "transport": "http", "urls": [kserve], "flavor": flavor}
    config = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "upstreams": {"there": there},
        "models": {
            "m": {"upstream": "there", "signature": SIGNATURE},
            "plain": {"upstream": "there", "remote_model": "m"},
            "other": {"upstream": "there", "signature": SIGNATURE},
        },
    }
    [found] = await probe(parse(yaml.safe_dump(config)), 10.0)
    assert found.name == "kserve"
    assert [(path[1], text.partition(" (")[0]) for path, text in found.faults] == [
        ("other", "the server has no model 'other'"),
        ("plain", "the server reports no metadata of model 'm': declare its signature"),
    ]
