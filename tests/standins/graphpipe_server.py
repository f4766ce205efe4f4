"""A GraphPipe server on plain aiohttp and graphpipe's own convert module.

As the original servers do it answers every path. It remembers the last request for tests to look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from graphpipe import convert

RECORDINGS = Path(__file__).parents[1] / "golden" / "graphpipe"
IN_BAND_ERROR = RECORDINGS / "pyclient.py_error_fb.resp.bin"


@dataclass
class Seen:
    """The last inference request, as graphpipe's own reader understood it."""

    path: str = ""
    config: bytes | None = None
    input_names: list[bytes] = field(default_factory=list)
    output_names: list[bytes] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)


def graphpipe_server(seen: Seen, names: tuple[list[str], list[str]], dtype: str) -> web.Application:
    """Two inputs give their sum and difference, otherwise every input comes back. The model calls its
    inputs and outputs ``names``. A config of ``fail`` is answered with status 400, ``fail in band``
    with errors inside a 200."""

    async def handle(request: web.Request) -> web.Response:
        asked = convert.deserialize_request(await request.read())
        if asked is None:
            return web.Response(body=bytes(convert.serialize_metadata_response(metadata(names, dtype))))
        seen.path, seen.config = request.path, asked.config
        seen.input_names, seen.output_names = asked.input_names, asked.output_names
        seen.inputs = asked.input_tensors
        if asked.config == b"fail":
            return web.Response(status=400, text="the model said no\n")
        if asked.config == b"fail in band":
            return web.Response(body=IN_BAND_ERROR.read_bytes())
        body = convert.serialize_infer_response(compute(asked.input_tensors))
        return web.Response(body=bytes(body))

    application = web.Application(client_max_size=1 << 30)
    application.router.add_post("/{path:.*}", handle)
    return application


def compute(inputs: list[Any]) -> list[Any]:
    if len(inputs) == 2:
        return [inputs[0] + inputs[1], inputs[0] - inputs[1]]
    return list(inputs)


def metadata(names: tuple[list[str], list[str]], dtype: str) -> dict[str, Any]:
    # graphpipe's own writer reverses both lists
    inputs, outputs = (
        [{"name": name, "shape": [-1, 16], "type": np.dtype(dtype)} for name in reversed(side)]
        for side in names
    )
    return {"name": "standin", "version": "1", "server": "graphpipe", "inputs": inputs, "outputs": outputs}
