"""Tensors, a signature and messages that the GraphPipe tests share."""

from __future__ import annotations

import numpy as np
from graphpipe import convert

from interlingua.protocols.graphpipe import codec
from interlingua.schemas import Datatype, InferRequest, Signature, Tensor
from tests.strategies import signature_of

STRINGS = Tensor.from_numpy("words", np.array([[b"abcd", b"x\0y\0"], [b"\xff\xfe\0raw", b""]], dtype=object))


def example(datatype: Datatype, name: str = "x") -> Tensor:
    if datatype is Datatype.BYTES:
        return STRINGS.renamed(name)
    return Tensor.from_numpy(name, np.arange(6).astype(datatype.dtype).reshape(2, 3), datatype)


def fp32(name: str, value: float = 1.0) -> Tensor:
    return Tensor.from_numpy(name, np.array([value], dtype=np.float32))


def joined(request: InferRequest) -> bytes:
    return b"".join(codec.encode_request(request))


def decoded(body: bytes, signature: Signature) -> tuple[InferRequest, codec.OutputNames]:
    return codec.decode_request(codec.open_request(body), signature)


def published(
    names: list[str], tensors: list[np.ndarray], outputs: list[str] | None = None, config: str = ""
) -> bytes:
    """What the published client writes."""
    return bytes(
        convert.serialize_infer_request(
            convert.InferReq(config=config, input_names=names, input_tensors=tensors, output_names=outputs)
        )
    )


AB = signature_of([fp32("a"), fp32("b")], [fp32("sum"), fp32("diff")])
ONES, TWOS = np.ones(1, dtype=np.float32), np.full(1, 2, dtype=np.float32)
