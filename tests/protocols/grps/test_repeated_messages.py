"""Messages of floats, whose heads are cached: each is what protobuf's own classes write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interlingua.protocols.grps import float_messages
from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.message import DTYPES, OK, GenericTensor, GrpsMessage, Kind, Status
from interlingua.schemas import InferenceError
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


def floats(name: str, shape: tuple[int, ...], first: float, model: str = "m") -> GrpsMessage:
    flat = np.arange(first, first + int(np.prod(shape)), dtype=np.float32)
    return GrpsMessage(Kind.GTENSORS, model, OK, tensors=(GenericTensor(name, 7, shape, flat),))


def test_messages_of_one_size_are_told_apart() -> None:
    given = [
        floats("ab", (2, 3), 1),
        floats("ac", (2, 3), 2),
        floats("ac", (3, 2), 3),
        floats("ac", (3, 2), 4, "n"),
        floats("ac", (3, 2), 5, "n"),
    ]
    sizes = {len(write_message(message)) for message in given}
    assert len(sizes) == 1
    for message in given * 2:
        read = read_message(write_message(message))
        (tensor,), (expected,) = read.tensors, message.tensors
        assert (read.model, tensor.name, tensor.shape) == (message.model, expected.name, expected.shape)
        np.testing.assert_array_equal(np.asarray(tensor.flat), np.asarray(expected.flat))


def test_another_form_of_a_known_size_is_read_as_it_is() -> None:
    message = floats("ab", (2, 3), 1)
    written = write_message(message)
    read_message(written)
    for position in range(len(written)):
        changed = bytearray(written)
        changed[position] ^= 1
        float_messages._KNOWN.clear()
        alone = outcome(bytes(changed))
        read_message(written)
        assert outcome(bytes(changed)) == alone


def outcome(data: bytes) -> Any:
    try:
        read = read_message(data)
    except InferenceError as error:
        return error.code, error.message
    tensors = [(each.name, each.dtype, each.shape, np.asarray(each.flat).tobytes()) for each in read.tensors]
    return read.kind, read.model, read.status, bytes(read.bin_data), read.str_data, tensors, read.gmap


@pytest.mark.parametrize("dimension", [1, 127, 128, 300, 2**31, 2**32 - 1])
def test_dimensions(dimension: int) -> None:
    written = _MESSAGE()
    written.gtensors.tensors.add(name="a", dtype=7, shape=[dimension, 0, dimension])
    assert read_message(written.SerializeToString()).tensors[0].shape == (dimension, 0, dimension)


def test_a_cut_dimension_is_malformed() -> None:
    tensor = b"\x10\x07\x1a\x01\x80"
    data = b"\x2a\x07\x0a\x05" + tensor
    with pytest.raises(InferenceError, match="cut short"):
        read_message(data)


def test_messages_of_many_tensors_are_not_cached() -> None:
    one = GenericTensor("", 7, (), np.ones(1, np.float32))
    float_messages._KNOWN.clear()
    read_message(write_message(GrpsMessage(Kind.GTENSORS, "m", tensors=(one,) * 5000)))
    assert not float_messages._KNOWN
    read_message(write_message(GrpsMessage(Kind.GTENSORS, "m", tensors=(one,) * 5)))
    assert float_messages._KNOWN
