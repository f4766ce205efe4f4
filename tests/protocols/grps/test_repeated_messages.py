"""Messages of floats, whose heads are cached: each is what protobuf's own classes write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.message import DTYPES, OK, GenericTensor, GrpsMessage, Kind, Status
from interlingua.schemas.grps import MESSAGES

_MESSAGE: Any = MESSAGES["grps.protos.v1.GrpsMessage"]


def expected(message: GrpsMessage) -> bytes:
    written = _MESSAGE(model=message.model)
    if message.status is not None:
        written.status.code, written.status.msg, written.status.status = 200, "OK", 1
    for tensor in message.tensors:
        added = written.gtensors.tensors.add(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape)
        getattr(added, DTYPES[tensor.dtype].field).extend(np.asarray(tensor.flat).tolist())
    serialized: bytes = written.SerializeToString()
    return serialized


@pytest.mark.parametrize("status", [None, OK, Status(200, "OK", 1)])
@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("", "")])
@pytest.mark.parametrize("dtypes", [(7, 7), (8, 8), (7, 8), (7, 4)])
@pytest.mark.parametrize("shape", [(2, 3), (1, 300), (0,)])
def test_a_repeated_message(
    status: Status | None, names: tuple[str, ...], dtypes: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    for model in ("m", "", "m"):
        tensors = []
        for name, dtype in zip(names, dtypes, strict=False):
            wire = DTYPES[dtype].wire
            assert wire is not None
            flat = random.integers(0, 1000, int(np.prod(shape))).astype(wire)
            tensors.append(GenericTensor(name, dtype, shape, flat))
        message = GrpsMessage(Kind.GTENSORS, model, status, tensors=tuple(tensors))
        written = write_message(message)
        assert _MESSAGE.FromString(written) == _MESSAGE.FromString(expected(message))
        read = read_message(written)
        assert (read.model, read.status) == (model, status)
        for tensor, given in zip(read.tensors, tensors, strict=True):
            assert (tensor.name, tensor.dtype, tensor.shape) == (given.name, given.dtype, given.shape)
            np.testing.assert_array_equal(np.asarray(tensor.flat), np.asarray(given.flat))
