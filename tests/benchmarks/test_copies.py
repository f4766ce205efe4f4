"""Between the received body and the upstream's bytes no tensor is copied, nor on the way back."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
import yaml

from benchmarks.bridging.requests import Request, request
from benchmarks.bridging.servers import bridge
from benchmarks.cases import CONFIG
from interlingua.protocols.wire import GrpcRequest, HttpCall, HttpReply, HttpRequest
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config.loader import parse

SIZE = 4 << 20
CALLERS = [("oip", "http"), ("trtis", "http"), ("graphpipe", "http"), ("oip", "grpc")]
UPSTREAMS = [("oip", "http"), ("oip", "grpc"), ("trtis", "http"), ("graphpipe", "http")]


class Upstream:
    """A client whose server is ``handlers``; an answer to an inference is prepared once."""

    def __init__(self, handlers: list[Any]) -> None:
        self._handlers = handlers
        self._inferred: Any = None

    async def send(self, call: Any) -> Any:
        large = sum(map(len, (getattr(call, "message", b""), *call.parts))) > SIZE // 2
        if large and self._inferred is not None:
            return self._inferred
        reply = await self._answer(call)
        if large:
            self._inferred = reply
        return reply

    async def _answer(self, call: Any) -> Any:
        if isinstance(call, GrpcRequest):
            answer = await self._handlers[1].handlers["grpc"].serve(GrpcRequest(call.method, call.whole))
            return replace(answer, message=answer.whole, parts=())
        assert isinstance(call, HttpCall)
        headers = {name.lower(): value for name, value in call.headers.items()}
        asked = HttpRequest(call.method, call.path, call.query, headers, b"".join(call.parts))
        http = self._handlers[0].handlers["http"]
        answer = http.head(asked) or await http.serve(asked)
        given = {name.lower(): value for name, value in answer.headers}
        return HttpReply(answer.status, given, b"".join(answer.parts))

    async def close(self) -> None:
        """Nothing to close."""


def assembled(config: dict[str, Any]) -> tuple[Any, list[Any]]:
    options = parse(yaml.safe_dump(config))
    assembly = assemble(options, load_local(options))
    return assembly, [assembly.pipeline(listener) for listener in options.listeners]


async def served(handlers: list[Any], asked: Request) -> Any:
    if asked.transport == "grpc":
        answer = await handlers[1].handlers["grpc"].serve(GrpcRequest(asked.path, asked.body))
        assert not answer.code, answer.details
        return answer
    path, _, query = asked.path.partition("?")
    headers = {name.lower(): value for name, value in asked.headers.items()}
    message = HttpRequest("POST", path, query, headers, asked.body)
    http = handlers[0].handlers["http"]
    answer = http.head(message) or await http.serve(message)
    assert answer.status == 200, answer
    return answer


@pytest.mark.parametrize(("dialect", "transport"), UPSTREAMS)
@pytest.mark.parametrize(("caller", "over"), CALLERS)
async def test_a_bridged_tensor_is_not_copied(caller: str, over: str, dialect: str, transport: str) -> None:
    there, remote = assembled({**CONFIG, "listeners": CONFIG["listeners"][:2]})
    here, handlers = assembled(bridge("127.0.0.1:9", dialect, transport))
    asked = request(caller, over, SIZE)
    try:
        (upstream,) = here.upstreams.values()
        for member in upstream.pool.members:
            await member.client.close()
            member.client = Upstream(remote)
        await served(handlers, asked)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        answer = await served(handlers, asked)
        held = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert asked.echoed in b"".join((getattr(answer, "message", b""), *answer.parts))
        assert held / SIZE < 0.1, held
    finally:
        await here.close()
        await there.close()
