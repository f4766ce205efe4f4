"""Models that answer any number of times, for tests of streams: what the recorded server's were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np

from interlingua.runtime.target import Target
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelStatus,
    Readiness,
    Signature,
    Tensor,
    TensorSpec,
)


class Repeat(Target):
    """A ``Target`` that answers once for each element of IN: the element in OUT, an error for a negative
    one, and the final flag by itself. ``began`` is set by the first request, ``closed`` by one that was
    not heard to its end; each response waits for ``pace_secs`` and has ``width`` elements."""

    def __init__(self, name: str = "repeat", pace_secs: float = 0.0, width: int = 1) -> None:
        self.name = name
        self._width = width
        self._pace_secs = pace_secs
        self.began, self.closed = asyncio.Event(), asyncio.Event()
        self.given = 0

    async def infer(self, request: InferRequest) -> InferResponse:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, "ModelInfer RPC doesn't support models with decoupled transaction policy"
        )

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        self.began.set()
        try:
            for value in request.inputs[0].numpy().ravel():
                await asyncio.sleep(self._pace_secs)
                self.given += 1
                if value < 0:
                    error = InferenceError(ErrorCode.MODEL_FAILED, "negative")
                    yield InferResponse(self.name, (), "1", request.id, final=False, error=error)
                else:
                    output = Tensor.from_numpy("OUT", np.full(self._width, value, np.int32))
                    yield InferResponse(self.name, (output,), "1", request.id, final=False)
            yield InferResponse(self.name, (), "1", request.id)
        except (GeneratorExit, asyncio.CancelledError):
            self.closed.set()
            raise

    async def signature(self, version: str = "") -> Signature:
        return Signature(
            (TensorSpec("IN", Datatype.INT32, (-1,)),), (TensorSpec("OUT", Datatype.INT32, (1,)),)
        )

    async def metadata(self, version: str = "") -> ModelMetadata:
        return ModelMetadata(self.name, await self.signature(), ("1",))

    async def status(self) -> ModelStatus:
        return ModelStatus(self.name, b"", ())

    async def ready(self, version: str = "") -> Readiness:
        return Readiness(True)

    async def close(self) -> None:
        """Nothing to let go."""


class AddSub(Repeat):
    """A ``Target`` that answers once: OUTPUT0 is the sum of its inputs, OUTPUT1 the difference."""

    def __init__(self, pace_secs: float = 0.0) -> None:
        super().__init__("add_sub", pace_secs)

    async def infer(self, request: InferRequest) -> InferResponse:
        await asyncio.sleep(self._pace_secs)
        first, second = (tensor.numpy() for tensor in request.inputs)
        outputs = (
            Tensor.from_numpy("OUTPUT0", first + second),
            Tensor.from_numpy("OUTPUT1", first - second),
        )
        return InferResponse(self.name, outputs, "1", request.id)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        yield await self.infer(request)

    async def signature(self, version: str = "") -> Signature:
        inputs = tuple(TensorSpec(name, Datatype.FP32, (-1,)) for name in ("INPUT0", "INPUT1"))
        outputs = tuple(TensorSpec(name, Datatype.FP32, (-1,)) for name in ("OUTPUT0", "OUTPUT1"))
        return Signature(inputs, outputs)
