"""The models that MLServer serves to the tests. They run in MLServer's own environment."""

from __future__ import annotations

import asyncio
import json

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput


class Identity(MLModel):
    """Every input comes back as an output, however it is coded."""

    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return self.answer(
            payload, [renamed(given, f"OUTPUT{place}") for place, given in enumerate(payload.inputs)]
        )

    def answer(self, payload: InferenceRequest, outputs: list[ResponseOutput]) -> InferenceResponse:
        return InferenceResponse(
            model_name=self.name, model_version=self.version, id=payload.id, outputs=outputs
        )


class Sums(Identity):
    """The sum and the difference of two inputs."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        first, second = (NumpyCodec.decode_input(given) for given in payload.inputs)
        arrays = {"OUTPUT0": first + second, "OUTPUT1": first - second}
        return self.answer(payload, [NumpyCodec.encode_output(name, array) for name, array in arrays.items()])


class Slow(Identity):
    """As many milliseconds as the input says."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        await asyncio.sleep(float(NumpyCodec.decode_input(payload.inputs[0]).flat[0]) / 1000)
        return await super().predict(payload)


class Raises(Identity):
    """Never an answer."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        raise RuntimeError("boom in execute")


class Parameters(Identity):
    """What the request said beside the tensors."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        given = payload.parameters.model_dump(exclude_none=True) if payload.parameters else {}
        kept = {name: value for name, value in given.items() if isinstance(value, str | int | bool)}
        text = json.dumps({"parameters": kept, "request_id": payload.id})
        told = ResponseOutput(name="PARAMS", shape=[1], datatype="BYTES", data=[text.encode()])
        return self.answer(payload, [told])


def renamed(given: RequestInput, name: str) -> ResponseOutput:
    data = given.data
    if given.datatype == "FP16" and isinstance(getattr(data, "root", data), bytes):
        data = np.frombuffer(getattr(data, "root", data), np.float16).tolist()
    return ResponseOutput(name=name, shape=given.shape, datatype=given.datatype, data=data)
