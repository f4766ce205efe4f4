"""An Open Inference Protocol server on plain aiohttp, json and struct, by the specification.

``binary=False`` leaves out the binary tensor data extension, as MLServer does: it answers 422 to it and
speaks JSON only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web

NUMPY = {"INT32": np.int32, "FP32": np.float32, "INT64": np.int64, "FP64": np.float64, "UINT8": np.uint8}
LENGTH = "Inference-Header-Content-Length"


@dataclass
class Seen:
    """The JSON part of every inference request, and the bytes behind it. ``headers`` are those of every request,
    by name in lower case, under its path."""

    requests: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    headers: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def oip_http_server(seen: Seen, *, binary: bool = True, configured: bool = False) -> web.Application:
    """Serves ``simple`` (INT32 sum and difference) and ``identity`` (FP32); with ``configured`` it tells
    the configuration of ``simple`` too, which Triton alone does."""

    async def ok(request: web.Request) -> web.Response:
        return web.Response()

    async def ready(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["model"] in ("simple", "identity") else 404)

    async def metadata(request: web.Request) -> web.Response:
        model = request.match_info["model"]
        if model not in ("simple", "identity"):
            return web.json_response({"error": f"no model {model}"}, status=404)
        datatype, names = ("INT32", "01") if model == "simple" else ("FP32", "0")
        shape = [-1, 16] if model == "simple" else [-1]

        def side(prefix: str) -> list[dict[str, Any]]:
            return [{"name": prefix + n, "datatype": datatype, "shape": shape} for n in names]

        return web.json_response(
            {
                "name": model,
                "versions": ["1"],
                "platform": "standin",
                "inputs": side("INPUT"),
                "outputs": side("OUTPUT"),
            }
        )

    async def infer(request: web.Request) -> web.Response:
        body = await request.read()
        length = request.headers.get(LENGTH)
        if length is not None and not binary:
            return web.json_response({"detail": [{"msg": "JSON decode error"}]}, status=422)
        head = json.loads(body[: int(length)] if length else body)
        tail = body[int(length) :] if length else b""
        seen.requests.append((head, tail))
        arrays = []
        for tensor in head["inputs"]:
            dtype = NUMPY[tensor["datatype"]]
            size = tensor.get("parameters", {}).get("binary_data_size")
            if size is None:
                arrays.append(np.array(tensor["data"], dtype).reshape(tensor["shape"]))
            else:
                arrays.append(np.frombuffer(tail[:size], dtype).reshape(tensor["shape"]))
                tail = tail[size:]
        if len(arrays) == 2:
            arrays = [arrays[0] + arrays[1], arrays[0] - arrays[1]]
        return write(request.match_info["model"], head, arrays)

    async def config(request: web.Request) -> web.Response:
        inputs = [{"name": name, "data_type": "TYPE_INT32", "dims": [16]} for name in ("INPUT0", "INPUT1")]
        told = {"name": "simple", "backend": "custom", "max_batch_size": 8, "input": inputs}
        return web.json_response(told)

    async def see(request: web.Request, response: web.StreamResponse) -> None:
        told = {name.lower(): value for name, value in request.headers.items()}
        seen.headers.append((request.path, told))

    application = web.Application(client_max_size=1 << 30)
    application.on_response_prepare.append(see)
    if configured:
        application.router.add_get("/v2/models/simple/config", config)
    application.router.add_get("/v2/health/live", ok)
    application.router.add_get("/v2/health/ready", ok)
    application.router.add_get("/v2/models/{model}/ready", ready)
    application.router.add_get("/v2/models/{model}", metadata)
    application.router.add_post("/v2/models/{model}/infer", infer)
    return application


def write(model: str, head: dict[str, Any], arrays: list[Any]) -> web.Response:
    wanted = head.get("outputs") or [{"name": f"OUTPUT{i}"} for i in range(len(arrays))]
    everything = bool(head.get("parameters", {}).get("binary_data_output")) and not head.get("outputs")
    outputs, buffers = [], []
    for asked in wanted:
        array = arrays[int(asked["name"].removeprefix("OUTPUT"))]
        datatype = next(name for name, dtype in NUMPY.items() if array.dtype == dtype)
        entry = {"name": asked["name"], "datatype": datatype, "shape": list(array.shape)}
        if everything or asked.get("parameters", {}).get("binary_data"):
            entry["parameters"] = {"binary_data_size": array.nbytes}
            buffers.append(array.tobytes())
        else:
            entry["data"] = array.ravel().tolist()
        outputs.append(entry)
    answer = {"model_name": model, "model_version": "1", "outputs": outputs}
    if "id" in head:
        answer["id"] = head["id"]
    text = json.dumps(answer).encode()
    if not any(buffers):
        return web.Response(body=text, content_type="application/json")
    return web.Response(
        body=text + b"".join(buffers),
        content_type="application/octet-stream",
        headers={LENGTH: str(len(text))},
    )
