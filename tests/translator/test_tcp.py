"""GraphPipe over tcp from a configuration on: a listener, an upstream, and what users are told."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from graphpipe import convert
from graphpipe.graphpipefb import InferResponse as Answered

from interlingua.protocols.transport.framed.server import FramedServer
from interlingua.runtime.repository.files import Loaded
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, ModelMetadata, Tensor
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.cli import parser
from interlingua.translator.cli.exchange import exchange
from interlingua.translator.config import ConfigError, parse
from interlingua.translator.daemon import _listen
from interlingua.translator.welcome import welcome
from tests.standins.framed import FramedClient, GraphPipeTcpServer

SPEC = {"datatype": "FP32", "shape": [-1, 16]}
SIGNATURE = {"inputs": [{"name": "X", **SPEC}], "outputs": [{"name": "Y", **SPEC}]}
PAGE = Path(__file__).parents[2] / "docs" / "dialects" / "graphpipe.md"
LISTENER = {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": "echo"}
VALUES = np.arange(32, dtype=np.float32).reshape(2, 16)


@asynccontextmanager
async def listening(
    listener: Mapping[str, object] = LISTENER, **document: object
) -> AsyncIterator[tuple[Assembly, FramedServer]]:
    """A daemon's parts around ``document``, with a model that echoes and one listener."""
    models = {"echo": {"backend": "identity", "signature": SIGNATURE}}
    config = parse(yaml.safe_dump({"listeners": [dict(listener)], "models": models, **document}))
    assembly = assemble(config, load_local(config))
    (bound,) = await _listen(assembly)
    assert isinstance(bound.server, FramedServer)
    try:
        yield assembly, bound.server
    finally:
        await bound.server.stop(0)
        await assembly.close()


def question(array: np.ndarray, names: list[str] | None = None, wanted: list[str] | None = None) -> bytes:
    """A request as graphpipe's own client writes it."""
    return bytes(convert.serialize_infer_request(convert.InferReq("", [array], names or [], wanted or [])))


def outputs(message: bytes | None) -> list[Any]:
    assert message is not None
    tensors, errors = convert.deserialize_infer_response(message)
    assert not errors
    return list(tensors)


def error(message: bytes | None) -> tuple[int, str]:
    said = Answered.InferResponse.GetRootAsInferResponse(message, 0).Errors(0)
    return said.Code(), said.Message().decode()


async def test_a_listener(tmp_path: Path) -> None:
    for listen in ("127.0.0.1:0", f"unix:{tmp_path}/graphpipe.sock"):
        async with (
            listening({**LISTENER, "listen": listen}) as (_, server),
            FramedClient.to(server.address) as client,
        ):
            for asked in (question(VALUES), question(VALUES, ["X"], ["Y"])):
                [got] = outputs(await client.ask(asked))
                assert np.array_equal(got, VALUES)
            told = convert.deserialize_metadata_response(
                await client.ask(bytes(convert.serialize_metadata_request()))
            )
            assert (told.Name(), told.Inputs(0).Name()) == (b"echo", b"X")


async def test_errors_stand_in_band_and_the_connection_goes_on() -> None:
    async with listening() as (_, server), FramedClient.to(server.address) as client:
        await client.send(
            b"", question(VALUES, ["Z"]), b"\xff" * 9, question(VALUES.astype(np.int8)), question(VALUES)
        )
        codes = [error(await client.receive())[0] for _ in range(4)]
        assert codes == [each.value for each in (ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR) * 2]
        assert np.array_equal(outputs(await client.receive())[0], VALUES)


async def test_without_a_model_nothing_is_answered_but_why() -> None:
    async with (
        listening({"listen": "127.0.0.1:0", "transport": "tcp"}) as (_, server),
        FramedClient.to(server.address) as client,
    ):
        for asked in (question(VALUES), bytes(convert.serialize_metadata_request())):
            code, words = error(await client.ask(asked))
            assert code == ErrorCode.NOT_FOUND.value
            assert words == "the request names no model and listener '127.0.0.1:0' has no default_model"


async def test_the_limits_of_the_configuration() -> None:
    listener = {**LISTENER, "max_request_bytes": 1000, "max_response_bytes": 400}
    async with listening(listener) as (_, server), FramedClient.to(server.address) as client:
        code, words = error(await client.ask(question(VALUES[:1].repeat(8, 0))))
        assert (code, "max_response_bytes" in words) == (ErrorCode.TOO_LARGE.value, True)
        code, words = error(await client.ask(question(VALUES.repeat(99, 0))))
        assert (code, "max_request_bytes" in words) == (ErrorCode.TOO_LARGE.value, True)
        assert await client.receive() is None


@asynccontextmanager
async def bridged(
    urls: list[str], limits: Mapping[str, object] | None = None, **model: object
) -> AsyncIterator[Any]:
    """A model that stands at ``urls``."""
    options = {"urls": urls, "probe_interval_secs": 0.1, **(limits or {})}
    document = {
        "listeners": [{"listen": ":0", "transport": "http"}],
        "upstreams": {"there": {"dialect": "graphpipe", "transport": "tcp", **options}},
        "models": {"m": {"upstream": "there", **model}},
    }
    assembly = assemble(parse(yaml.safe_dump(document)), Loaded())
    try:
        yield assembly.service.router.models["m"]
    finally:
        await assembly.close()


def asking(*arrays: np.ndarray, **parameters: str) -> InferRequest:
    inputs = tuple(Tensor.from_numpy(name, array) for name, array in zip("ab", arrays, strict=False))
    return InferRequest("m", inputs, parameters=dict(parameters), context=Context())


async def test_an_upstream() -> None:
    standin = GraphPipeTcpServer((["a", "b"], ["sum", "difference"]))
    async with standin.running(), bridged([f"tcp://127.0.0.1:{standin.port}"]) as model:
        answers = await asyncio.gather(*(model.infer(asking(VALUES + n, VALUES)) for n in range(20)))
        for number, answer in enumerate(answers):
            assert [tensor.name for tensor in answer.outputs] == ["sum", "difference"]
            assert np.array_equal(answer.outputs[0].numpy(), 2 * VALUES + number)
        assert standin.connections <= 21
        told: ModelMetadata = await model.metadata()
        assert [spec.name for spec in told.signature.inputs] == ["a", "b"]
        assert (await model.ready()).ready
        with pytest.raises(InferenceError, match="the model said no") as caught:
            await model.infer(asking(VALUES, VALUES, config="fail"))
        assert (caught.value.code, caught.value.origin) == (ErrorCode.INVALID_TENSOR, "there")


async def test_servers_that_are_alike() -> None:
    first, second = (GraphPipeTcpServer((["a"], ["a"])) for _ in range(2))
    async with second.running():
        async with first.running(), bridged([f"127.0.0.1:{each.port}" for each in (first, second)]) as model:
            await asyncio.gather(*(model.infer(asking(VALUES)) for _ in range(10)))
            assert len(first.requests) >= 3
            assert len(second.requests) >= 3
        asked = len(second.requests)
        # the first is gone: what could not be sent there goes to the second
        async with bridged([f"127.0.0.1:{each.port}" for each in (first, second)]) as model:
            for _ in range(5):
                await model.infer(asking(VALUES))
        assert len(second.requests) == asked + 5


async def test_bytes_under_way_are_bounded() -> None:
    standin = GraphPipeTcpServer((["a"], ["a"]))
    # each message has more than half of that
    limits = {"max_bytes_in_flight": 300, "max_wait_secs": 0.0}
    signature = {side: [{"name": "a", **SPEC}] for side in ("inputs", "outputs")}
    async with (
        standin.running(),
        bridged([f"127.0.0.1:{standin.port}"], limits, signature=signature) as model,
    ):
        answers = await asyncio.gather(
            *(model.infer(asking(VALUES)) for _ in range(3)), return_exceptions=True
        )
        codes = [each.code for each in answers if isinstance(each, InferenceError)]
        assert codes == [ErrorCode.OVERLOADED] * 2


async def test_ours_behind_ours() -> None:
    async with listening() as (_, server), bridged([str(server.address)]) as model:
        answer = await model.infer(InferRequest("m", (Tensor.from_numpy("X", VALUES),), context=Context()))
        assert np.array_equal(answer.outputs[0].numpy(), VALUES)
        with pytest.raises(InferenceError) as caught:
            await model.infer(InferRequest("m", (Tensor.from_numpy("Z", VALUES),), context=Context()))
        assert caught.value.code is ErrorCode.INVALID_TENSOR


async def test_a_name_has_no_place_there() -> None:
    with pytest.raises(
        ConfigError, match=r"models\.m\.remote_model: graphpipe over tcp has no place for a name"
    ):
        async with bridged(["127.0.0.1:1"], remote_model="digits"):
            pass
    async with bridged(["127.0.0.1:1"], remote_model=""):
        pass  # the one model that there is


async def test_called_from_the_command_line(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    async with listening() as (_, server):
        there = ["--dialect=graphpipe", "--transport=tcp", f"--url=tcp://{server.address}", "--model="]
        inputs = [f"--input==@{tmp_path}/x.npy", "--output=Y", "--timeout-secs=10"]
        async with exchange(parser().parse_args(["infer", *there, *inputs])) as request:
            answer = await request.once()
        assert np.array_equal(answer.outputs[0].numpy(), VALUES)


async def test_the_client_on_the_page(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    shown = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    client.write_text(shown[1])
    digits = {"backend": "onnxruntime", "path": "examples/models/digits"}
    models = {"digits": digits, "echo": {"backend": "identity", "signature": SIGNATURE}}
    said = {}
    for name in models:
        async with listening({**LISTENER, "default_model": name}, models=models) as (_, server):
            command = [sys.executable, str(client), server.address.host, str(server.address.port)]
            said[name] = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=20
            )
    assert said["digits"].stdout.strip().isdigit(), said["digits"]
    assert said["echo"].stderr.strip() == "Could not find output 'label'"


async def test_what_serve_shows_can_be_run(tmp_path: Path) -> None:
    async with listening() as (assembly, server):
        shown = welcome(assembly.config, [(assembly.config.listeners[0], server.address)])
        command = shown.splitlines()[-1].strip()
        assert f"graphpipe  tcp   {server.address}" in shown
        done = await asyncio.to_thread(subprocess.run, command, shell=True, capture_output=True, timeout=20)
        assert b"echo" in done.stdout, done
    unix = {**LISTENER, "listen": f"unix:{tmp_path}/a.sock"}
    async with listening(unix) as (assembly, server):
        shown = welcome(assembly.config, [(assembly.config.listeners[0], server.address)])
        assert "curl" not in shown


def test_what_a_listener_may_be() -> None:
    config = parse(yaml.safe_dump({"listeners": [{"listen": ":0", "transport": "tcp"}]}))
    assert config.listeners[0].dialects == ("graphpipe",)
    assert config.listeners[0].max_request_bytes == 64 << 20
    for wrong in ({"dialects": ["oip"]}, {"max_concurrency": 1}):
        with pytest.raises(ConfigError, match="tcp"):
            parse(yaml.safe_dump({"listeners": [{"listen": ":0", "transport": "tcp", **wrong}]}))


@pytest.mark.parametrize("url", ["http://a:1", "tcp://a:1/base"])
def test_urls_that_tcp_has_no_use_for(url: str) -> None:
    told = {"dialect": "graphpipe", "transport": "tcp", "urls": [url]}
    with pytest.raises(ConfigError, match=r"upstreams\.there\.urls"):
        parse(yaml.safe_dump({"listeners": [LISTENER], "upstreams": {"there": told}}))
