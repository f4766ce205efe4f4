"""The models that the recorded servers had: one that echoes, and answers some texts otherwise; one that says
who it is; one of tensors; one that is given HTTP
requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np

from interlingua.runtime.target import Target
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelState,
    ModelStatus,
    Readiness,
    Signature,
    Tensor,
    VersionStatus,
    pack_bytes,
)
from interlingua.schemas.messages import TensorSpec
from interlingua.schemas.oip import MESSAGES

CONFIG: Any = MESSAGES["inference.ModelConfig"]


def text(value: bytes, name: str = "str_data") -> Tensor:
    return Tensor(name, Datatype.BYTES, (1,), memoryview(pack_bytes([value])))


def _array(name: str, values: Sequence[Any], dtype: str, shape: tuple[int, ...] = (-1,)) -> Tensor:
    return Tensor.from_numpy(name, np.array(values, np.dtype(dtype)).reshape(shape))


def _strings(name: str, *values: str) -> Tensor:
    packed = pack_bytes([value.encode() for value in values])
    return Tensor(name, Datatype.BYTES, (len(values),), memoryview(packed))


ALL = (
    _array("u8", [0, 1, 255], "u1"),
    _array("i8", [-128, 0, 127], "i1"),
    _array("i16", [-(2**15), 0, 2**15 - 1], "i2"),
    _array("i32", [-(2**31), 0, 2**31 - 1], "i4"),
    _array("i64", [-(2**63), 0, 2**63 - 1], "i8"),
    _array("f16", [0.1, 1, 65504, -0.0], "f2"),
    _array("f32", [0.1, 1, 3.4e38, 1e-7, 16777216], "f4"),
    _array("f64", [0.1, 1, 1e300, 1e-7], "f8"),
    _strings("s", "a", '你好 "q" \n'),
    _array("scalar", [7], "f4", ()),
    _array("empty", [], "f4", (0,)),
)
SPECIAL: Mapping[str, tuple[Tensor, ...]] = {
    "empty": (),
    "bin": (text(b"\x00\x01bin\xff", "bin_data"),),
    "binempty": (text(b"", "bin_data"),),
    "all": ALL,
    "nan": (_array("f", [np.nan, np.inf, -np.inf], "f4"),),
    "f64": (_array("d", [1.5], "f8"),),
    "two": (_array("a", [1, 2.5], "f4"), _array("b", [1, 2.5], "f4")),
}
"""What is answered to some texts."""


class Echo(Target):
    """A ``Target`` that answers with its inputs. It takes whatever comes, so it declares no tensors."""

    def __init__(self, name: str, version: str, tag: bytes = b"") -> None:
        self.name = name
        self._version = version
        self._tag = tag

    async def infer(self, request: InferRequest) -> InferResponse:
        said = _said(request)
        if said.startswith(("raise:", "err:")):
            raise InferenceError(ErrorCode.MODEL_FAILED, said.partition(":")[2])
        if said.startswith("sleep:"):
            await asyncio.sleep(int(said[6:]) / 1000)
        outputs = (text(self._tag),) if self._tag else SPECIAL.get(said, request.inputs)
        return InferResponse(self.name, outputs, self._version)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        said = _said(request).removesuffix("-slow")
        kinds = ((text(b"one"),), ALL, SPECIAL["bin"])
        pieces = {
            "stream-none": (),
            "stream-err": kinds[:1],
            "stream-raise": kinds[:1],
            "stream-kinds": kinds,
        }.get(said, tuple((text(b"stream data %d" % index),) for index in range(3)))
        for outputs in pieces:
            yield InferResponse(self.name, outputs, self._version, final=False)
        if said in ("stream-err", "stream-raise"):
            raise InferenceError(ErrorCode.MODEL_FAILED, "bad thing mid-stream")
        yield InferResponse(self.name, (), self._version)

    async def signature(self, version: str = "") -> Signature:
        if version not in ("", self._version):
            raise InferenceError(ErrorCode.NOT_FOUND, f"no version {version}")
        return Signature((), ())

    async def metadata(self, version: str = "") -> ModelMetadata:
        return ModelMetadata(self.name, await self.signature(version), (self._version,))

    async def status(self) -> ModelStatus:
        config = CONFIG(backend="python").SerializeToString()
        return ModelStatus(self.name, config, (VersionStatus(self._version, ModelState.READY),))

    async def ready(self, version: str = "") -> Readiness:
        return Readiness(True)

    async def close(self) -> None:
        """Nothing to let go."""


def _said(request: InferRequest) -> str:
    """The text of a request that is nothing but one."""
    if len(request.inputs) != 1 or request.inputs[0].datatype is not Datatype.BYTES:
        return ""
    elements = request.inputs[0].elements()
    return elements[0].decode(errors="replace") if len(elements) == 1 else ""


class Writer(Echo):
    """A ``Target`` that is given an HTTP request and writes the answer. Of the two recorded servers one told
    its model's method: ``tells_method``."""

    def __init__(self, tells_method: bool) -> None:
        super().__init__("your_model", "1.0.0")
        self._tells_method = tells_method

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        given = {tensor.name: tensor.elements()[0] for tensor in request.inputs}
        body = given["http_body"]
        streams = b'"stream": true' in body
        if streams:
            for index in range(2):
                yield self._response(b"data: %d %s\n\n" % (index, body))
        if body == b"raise" or b'"x": "raise"' in body:
            raise InferenceError(ErrorCode.MODEL_FAILED, "custom boom")
        if streams:
            if b"seterr" not in body:
                yield self._response(b"data: [DONE]\n\n")
        elif body == b"tuple":
            status = Tensor.from_numpy("http_status", np.array([201], np.int32))
            yield self._response(b'{"a":1}', status, text(b"application/json", "http_content_type"))
        elif body not in (b"seterr", b"nothing"):
            method = given["http_method"] + b" " if self._tells_method else b""
            yield self._response(b"echo " + method + body)
        yield InferResponse(self.name, (), self._version)

    def _response(self, body: bytes, *more: Tensor) -> InferResponse:
        return InferResponse(self.name, (text(body, "http_body"), *more), self._version, final=False)

    async def signature(self, version: str = "") -> Signature:
        names = ("http_method", "http_body")
        return Signature(tuple(TensorSpec(name, Datatype.BYTES, (1,)) for name in names), ())


class Converter(Echo):
    """A ``Target`` that takes tensors of FP32 alone and answers with each under another name."""

    async def infer(self, request: InferRequest) -> InferResponse:
        if not request.inputs or any(tensor.datatype is not Datatype.FP32 for tensor in request.inputs):
            raise InferenceError(ErrorCode.INVALID_TENSOR, "it takes FP32 alone")
        outputs = tuple(tensor.renamed(f"{tensor.name}_out") for tensor in request.inputs)
        return InferResponse(self.name, outputs, self._version)

    async def signature(self, version: str = "") -> Signature:
        return Signature(
            (TensorSpec("a", Datatype.FP32, (-1,)),), (TensorSpec("a_out", Datatype.FP32, (-1,)),)
        )
