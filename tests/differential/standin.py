"""An upstream that keeps every request, and answers as a scenario says: a server of identity models, whose
responses and answers an act may change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from interlingua.protocols.transport import servers
from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.servers import ServerSettings
from interlingua.schemas import InferRequest, InferResponse
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from tests.differential.callers import text
from tests.differential.calls import SPECS
from tests.differential.relay import Cut, Relay, usual

_SPECS = [{"name": each.name, "datatype": each.datatype.value, "shape": list(each.shape)} for each in SPECS]
IDENTITY: dict[str, Any] = {"backend": "identity", "signature": {"inputs": _SPECS, "outputs": _SPECS}}
"""The configuration of a model that returns its inputs."""

_OTHER = [
    _SPECS[0],
    {"name": "b", "datatype": "INT64", "shape": [-1]},
    {"name": "c", "datatype": "UINT8", "shape": [-1]},
    {"name": "d", "datatype": "FP64", "shape": [-1, -1]},
]
OTHER: dict[str, Any] = {"backend": "identity", "signature": {"inputs": _OTHER, "outputs": _OTHER}}
"""Such a model with another signature."""

_FLOATS = [_SPECS[0], {**_SPECS[0], "name": "d", "datatype": "FP64"}]
FLOATS: dict[str, Any] = {"backend": "identity", "signature": {"inputs": _FLOATS, "outputs": _FLOATS}}
"""Such a model of floats alone, whose contents have one length in every dialect."""


@dataclass(frozen=True)
class Act:
    """What is unusual about the answer to a request: another ``response``, or its error; another ``answer``;
    the bytes of its end. With ``silent`` there is none."""

    response: Callable[[InferResponse], InferResponse] = field(default=lambda response: response)
    answer: Callable[[Any, int], Any] = field(default=lambda answer, number: answer)
    cut: Cut = usual
    silent: bool = False


USUAL = Act()


class Standin:
    """``seen`` are the requests; the one of a number is answered by its act in ``script``."""

    def __init__(self, dialect: str, transport: str) -> None:
        self.dialect, self.transport = dialect, transport
        self.seen: list[Any] = []
        self.script: Mapping[int, Act] = {}
        self._act = USUAL

    def begin(self, script: Mapping[int, Act]) -> None:
        """Forget everything for another scenario."""
        self.relay.reset()
        self.seen, self.script, self._act = [], script, USUAL

    async def start(self) -> None:
        listener = {"listen": "127.0.0.1:0", "transport": self.transport, "dialects": [self.dialect]}
        config = {
            "server": {"plans": False, "access_log": "none"},
            "listeners": [{**listener, "default_model": "m", "max_request_bytes": 1 << 26}],
            "models": {"m": IDENTITY, "n": IDENTITY, "other": OTHER, "floats": FLOATS},
        }
        options = parse(yaml.safe_dump(config))
        self._assembly: Assembly = assemble(options, load_local(options))
        pipeline = self._assembly.pipeline(options.listeners[0])
        handlers = {name: Recording(each, self) for name, each in pipeline.handlers.items()}
        settings = ServerSettings(1 << 26, load=pipeline.load)
        self._server = servers.SERVERS[self.transport](handlers, parse_address("127.0.0.1:0"), settings)
        address = await self._server.start()
        self.relay = Relay(address.port)
        self.address = f"127.0.0.1:{await self.relay.start()}"
        models: Any = self._assembly.service.router.models
        for name in ("m", "n", "other", "floats"):
            models[name] = _Scripted(models[name], self)

    async def stop(self) -> None:
        self.relay.stop()
        await self._server.stop(0)
        await self._assembly.close()

    async def serve(self, handler: Any, request: Any) -> Any:
        collect = getattr(request, "collect", None)
        if collect is not None:
            await collect()
        self.seen.append(self._view(request))
        number = len(self.seen) - 1
        act = self._act = self.script.get(number, USUAL)
        answer = act.answer(await handler.serve(request), number)
        self._act = USUAL
        if act.silent:
            await asyncio.Event().wait()
        self.relay.cut = act.cut
        return answer

    def _view(self, request: Any) -> list[Any]:
        if self.transport == "http":
            received = text(bytes(self.relay.received))
            self.relay.received.clear()
            return [received]
        if self.transport == "grpc":
            return [request.method, dict(request.metadata), text(request.message)]
        if self.transport == "brpc":
            headers = dict(request.context.headers)
            return [request.service, request.method, headers, request.compression, text(request.message)]
        return [text(request.message)]

    def respond(self, response: InferResponse) -> InferResponse:
        return self._act.response(response)


class Recording:
    """A handler whose requests ``there`` keeps."""

    def __init__(self, handler: Any, there: Standin) -> None:
        self._handler = handler
        self._there = there

    def __getattr__(self, name: str) -> Any:
        if name in ("fast_path", "inline_path"):
            raise AttributeError(name)
        return getattr(self._handler, name)

    async def serve(self, request: Any) -> Any:
        return await self._there.serve(self._handler, request)


class _Scripted:
    """A model whose responses ``there`` changes."""

    def __init__(self, model: Any, there: Standin) -> None:
        self._model = model
        self._there = there

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def infer(self, request: InferRequest) -> InferResponse:
        return self._there.respond(await self._model.infer(request))
