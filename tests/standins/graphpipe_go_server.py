"""A GraphPipe server as graphpipe-go's ``Serve`` makes one, on plain aiohttp and graphpipe's own convert module.

It ignores the names of outputs: an answer holds every result of the function, in the function's order. Its metadata
call inputs and outputs ``input0``, ``output0`` and so on; their type is always Int64 and their shape the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web
from graphpipe import convert

from tests.standins.graphpipe_server import answer, text


@dataclass
class GoServer:
    """Serves ``function``, from as many arrays as it has ``inputs`` to as many as ``outputs``. ``asked`` are the
    names of outputs in each request."""

    function: Callable[..., Sequence[Any]]
    inputs: int
    outputs: int
    asked: list[list[str]] = field(default_factory=list)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_post("/{path:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.Response:
        message = convert.deserialize_request(await request.read())
        if message is None:
            return web.Response(body=bytes(convert.serialize_metadata_response(self._metadata())))
        self.asked.append(text(message.output_names))
        given = [
            array for _, array in sorted(zip(text(message.input_names), message.input_tensors, strict=True))
        ]
        return web.Response(body=answer(list(self.function(*given))))

    def _metadata(self) -> dict[str, Any]:
        # graphpipe's own writer reverses both lists
        inputs, outputs = (
            [
                {"name": f"{kind}{place}", "shape": [1], "type": np.dtype("int64")}
                for place in reversed(range(count))
            ]
            for kind, count in (("input", self.inputs), ("output", self.outputs))
        )
        return {
            "name": "SimpleModel",
            "version": "",
            "server": "",
            "description": "",
            "inputs": inputs,
            "outputs": outputs,
        }
