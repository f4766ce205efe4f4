"""A GraphPipe server on plain aiohttp and graphpipe's own convert module.

As the original servers do it answers every path. It remembers the last request for tests to look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from aiohttp import web
from graphpipe import convert
from graphpipe.graphpipefb import InferResponse

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
        given = dict(zip(text(asked.input_names) or names[0], asked.input_tensors, strict=True))
        outputs = compute([given[name] for name in names[0]])
        answers = dict(zip(names[1], outputs, strict=True))
        return web.Response(body=answer([answers[name] for name in text(asked.output_names) or names[1]]))

    application = web.Application(client_max_size=1 << 30)
    application.router.add_post("/{path:.*}", handle)
    return application


def text(names: list[bytes]) -> list[str]:
    return [name.decode() for name in names]


def answer(outputs: list[Any]) -> bytes:
    """What graphpipe's ``serialize_infer_response`` writes, without its vector of errors: with a current
    flatbuffers library that one comes out as long as the vector of tensors."""
    builder = flatbuffers.Builder(1024)
    tensors = [convert.make_tensor(builder, output) for output in reversed(outputs)]
    InferResponse.InferResponseStartOutputTensorsVector(builder, len(tensors))
    for tensor in tensors:
        builder.PrependUOffsetTRelative(tensor)
    vector = builder.EndVector()
    InferResponse.InferResponseStart(builder)
    InferResponse.InferResponseAddOutputTensors(builder, vector)
    builder.Finish(InferResponse.InferResponseEnd(builder))
    return bytes(builder.Output())


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
