"""A server without a network: models that echo, REST bodies and messages in, answers out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from interlingua.protocols.tfserving import DIALECT
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import Datatype, ServerMetadata, Signature, TensorSpec
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.loopback import echoing


def one(datatype: Datatype, *shape: int, name: str = "x", labels: tuple[str, ...] = ()) -> Signature:
    """A model with one input and one output."""
    spec = TensorSpec(name, datatype, shape)
    return Signature((spec,), (TensorSpec(name, datatype, shape, labels=labels),))


MODELS = {
    "floats": one(Datatype.FP32, -1, -1),
    "row": one(Datatype.FP32, -1),
    "cube": one(Datatype.INT32, -1, -1, -1),
    "doubles": one(Datatype.FP64, -1),
    "halves": one(Datatype.FP16, -1),
    "brains": one(Datatype.BF16, -1),
    "ints": one(Datatype.INT8, -1),
    "longs": one(Datatype.INT64, -1),
    "unsigned": one(Datatype.UINT64, -1),
    "truth": one(Datatype.BOOL, -1),
    "texts": one(Datatype.BYTES, -1),
    "images": one(Datatype.BYTES, -1, name="image_bytes"),
    "scalar": one(Datatype.FP32),
    "fixed": one(Datatype.FP32, -1, 3),
    "classes": one(Datatype.FP32, -1, 2, name="scores", labels=("ant", "bee")),
    "value": one(Datatype.FP32, -1, 1),
    "two": Signature(
        (TensorSpec("a", Datatype.INT32, (-1,)), TensorSpec("b", Datatype.BYTES, (-1, 1))),
        (TensorSpec("a", Datatype.INT32, (-1,)), TensorSpec("b", Datatype.BYTES, (-1, 1))),
    ),
}


def pipeline(flavor: str = "", models: Mapping[str, Signature] = MODELS) -> Pipeline:
    """A listener with ``models``."""
    service = Service(Router(echoing(models)), ServerMetadata("interlingua", "0"))
    return Pipeline(service, "loopback", [each.flavored(flavor) for each in DIALECT.bindings.values()])


class Server:
    """The listener, and what its clients do."""

    def __init__(self, flavor: str = "") -> None:
        self._handlers = pipeline(flavor).handlers

    async def send(
        self, method: str, path: str, body: Any = b"", headers: dict[str, str] | None = None
    ) -> HttpAnswer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = HttpRequest(method, path, "", headers or {}, content)
        handler = self._handlers["http"]
        return handler.head(request) or await handler.serve(request)

    async def rest(self, method: str, path: str, body: Any = b"", **options: Any) -> tuple[int, Any]:
        """The status and the document of an answer."""
        answer = await self.send(method, path, body, **options)
        return answer.status, json.loads(b"".join(parts_of(answer)))

    async def predict(self, model: str, body: Any) -> tuple[int, Any]:
        return await self.rest("POST", f"/v1/models/{model}:predict", body)

    async def call(self, service: str, rpc: str, message: Any) -> GrpcAnswer:
        """The answer to a message of any library, or to bytes."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        return await self._handlers["grpc"].serve(GrpcRequest(f"/tensorflow.serving.{service}/{rpc}", data))
