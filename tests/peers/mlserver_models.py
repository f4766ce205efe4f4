"""The models that MLServer serves to the tests. They run in MLServer's own environment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from mlserver import MLModel
from mlserver.codecs import Base64Codec, NumpyCodec
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


class Encoded(Identity):
    """Bytes as base64, which the answer says."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return self.answer(
            payload, [Base64Codec.encode_output("OUT", [b"\0\xff", b"plain"], use_bytes=False)]
        )


class Decoded(Identity):
    """What the inputs are by their content types: the elements of each, in JSON."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        told = json.dumps([list(elements(self.decode(given))) for given in payload.inputs])
        return self.answer(
            payload, [ResponseOutput(name="TEXT", shape=[1], datatype="BYTES", data=[told.encode()])]
        )

    async def predict_stream(
        self, payloads: AsyncIterator[InferenceRequest]
    ) -> AsyncIterator[InferenceResponse]:
        """A piece for each element of the first input; a negative one fails."""
        async for payload in payloads:
            for element in elements(self.decode(payload.inputs[0])):
                if element < 0:
                    raise ValueError("negative")
                told = ResponseOutput(name="TEXT", shape=[1], datatype="BYTES", data=[str(element).encode()])
                yield self.answer(payload, [told])


def elements(value: Any) -> Iterator[Any]:
    """The elements of what a codec made, or of data that no codec has touched; bytes as hexadecimal text."""
    value = getattr(value, "root", value)
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, list):
        for each in value:
            yield from elements(each)
    elif isinstance(value, str | bytes):
        yield (value.encode() if isinstance(value, str) else value).hex()
    else:
        yield value


def renamed(given: RequestInput, name: str) -> ResponseOutput:
    data = given.data
    if given.datatype == "FP16" and isinstance(getattr(data, "root", data), bytes):
        data = np.frombuffer(getattr(data, "root", data), np.float16).tolist()
    return ResponseOutput(name=name, shape=given.shape, datatype=given.datatype, data=data)
