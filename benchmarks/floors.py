"""The bare servers beside which the daemon is measured: what aiohttp, grpcio and asyncio's streams cost by
themselves.

Each runs on the same event loop and with the same allocator settings as the daemon.
``python -m benchmarks.floors http|json|grpc|tcp`` prints its address and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import numpy as np
import orjson
import simdjson
from aiohttp import web

from benchmarks.cases import OIP_METHOD, TRTIS_METHOD
from interlingua.protocols.transport import loop
from interlingua.runtime.allocator import tune_allocator

_LIMIT = 64 << 20
_FEW_BYTES = 2048
"""Below this size orjson reads faster than simdjson; the daemon makes the same choice."""


async def http() -> str:
    """An aiohttp handler that answers with the body of the request."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    return await _aiohttp(echo)


async def json() -> str:
    """An aiohttp handler that reads the numbers in a request and prints them as an answer."""

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if len(body) < _FEW_BYTES:
            tensor = orjson.loads(body)["inputs"][0]
            shape, data = tensor["shape"], np.array(tensor["data"], np.float32)
        else:
            document: Any = simdjson.Parser().parse(body)
            tensor = document["inputs"][0]
            shape = tensor["shape"].as_list()
            data = np.frombuffer(tensor["data"].as_buffer(of_type="d")).astype(np.float32)
        output = {"name": "OUTPUT0", "shape": shape, "datatype": "FP32", "data": data.ravel()}
        text = orjson.dumps({"outputs": [output]}, option=orjson.OPT_SERIALIZE_NUMPY)
        return web.Response(body=text, content_type="application/json")

    return await _aiohttp(answer)


async def grpc_() -> str:
    """A grpc.aio method that answers with the bytes of the request."""

    async def echo(message: bytes, call: Any) -> bytes:
        return message

    limits = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0), *limits))
    for path in (OIP_METHOD, TRTIS_METHOD):
        service, _, method = path.strip("/").partition("/")
        handlers = {method: grpc.unary_unary_rpc_method_handler(echo)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _running.append(server)
    return f"127.0.0.1:{port}"


async def tcp() -> str:
    """A stream that answers every message, which has its size before it, with the same."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readexactly(4)
                writer.writelines((head, await reader.readexactly(int.from_bytes(head, "little"))))
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    _running.append(server)
    return "{}:{}".format(*server.sockets[0].getsockname())


async def _aiohttp(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
    application = web.Application(client_max_size=_LIMIT)
    application.router.add_post("/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return f"{host}:{port}"


FLOORS = {"http": http, "json": json, "grpc": grpc_, "tcp": tcp}
_running: list[Any] = []


async def _serve(kind: str) -> None:
    sys.stdout.write(f"{await FLOORS[kind]()}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    tune_allocator()
    loop.run(_serve(sys.argv[1]))
