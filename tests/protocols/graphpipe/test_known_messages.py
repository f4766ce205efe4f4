"""Messages that repeat all but the data of their tensor are read as every other one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.graphpipe import codec
from interlingua.schemas import Datatype, InferenceError, InferRequest, RequestedOutput, Signature, Tensor
from tests.protocols.graphpipe.messages import decoded, fp32, joined, published
from tests.strategies import signature_of

SHAPES = ((2, 3), (3, 2), (6,), (1, 6))
DATATYPES = (Datatype.FP32, Datatype.INT32, Datatype.UINT32)
SIGNATURES = tuple(
    signature_of(
        [Tensor.from_numpy("x", np.zeros(shape, datatype.dtype))],
        [Tensor.from_numpy("y", np.zeros(shape, datatype.dtype))],
    )
    for shape in SHAPES[:2]
    for datatype in DATATYPES
)

tensors = st.builds(
    lambda values, shape, datatype: Tensor.from_numpy(
        "x", np.array(values).reshape(shape).astype(datatype.dtype), datatype
    ),
    st.lists(st.integers(0, 2**31 - 1), min_size=6, max_size=6),
    st.sampled_from(SHAPES),
    st.sampled_from(DATATYPES),
)


def fresh(signature: Signature) -> Signature:
    """An equal signature, for which no message is known."""
    return replace(signature)


def outcome(body: bytes, signature: Signature) -> object:
    try:
        return decoded(body, signature)
    except InferenceError as error:
        return error.code, error.message


def answered(body: bytes, requested: codec.OutputNames, signature: Signature) -> object:
    try:
        return codec.decode_response(body, requested, signature)
    except InferenceError as error:
        return error.code, error.message


@given(st.lists(st.tuples(tensors, st.sampled_from(SIGNATURES), st.booleans(), st.booleans()), max_size=8))
def test_requests_read_as_if_none_were_known(
    requests: list[tuple[Tensor, Signature, bool, bool]],
) -> None:
    for tensor, signature, published_client, names in requests:
        outputs = (RequestedOutput("y"),) if names else None
        body = joined(InferRequest("m", (tensor,), outputs))
        if published_client:
            array = np.frombuffer(tensor.view, tensor.datatype.dtype).reshape(tensor.shape)
            body = published(["x"] if names else [], [array], ["y"] if names else [])
        assert outcome(body, signature) == outcome(body, fresh(signature))


@given(st.lists(st.tuples(tensors, st.sampled_from(SIGNATURES), st.sampled_from([None, ("y",)])), max_size=8))
def test_answers_read_as_if_none_were_known(
    answers: list[tuple[Tensor, Signature, codec.OutputNames]],
) -> None:
    for tensor, signature, requested in answers:
        body = b"".join(codec.encode_response(None, (tensor,)))
        assert answered(body, requested, signature) == answered(body, requested, fresh(signature))


def test_a_repeated_request_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = signature_of([fp32("x")], [fp32("y")])
    first = decoded(joined(InferRequest("m", (fp32("x", 1),))), signature)
    second = joined(InferRequest("m", (fp32("x", 2),)))
    monkeypatch.setattr(codec.reader, "tensor", None)
    request, names = decoded(second, signature)
    assert (request.inputs, names) == ((fp32("x", 2),), first[1])
    with pytest.raises(TypeError):  # another signature may bind another name
        decoded(second, fresh(signature))


def test_contents_that_are_checked_are_read_each_time() -> None:
    truth = Tensor.from_numpy("x", np.array([True, False]))
    signature = signature_of([truth], [truth.renamed("y")])
    assert decoded(joined(InferRequest("m", (truth,))), signature)[0].inputs == (truth,)
    other = Tensor.from_numpy("x", np.array([2, 0], np.uint8))
    with pytest.raises(InferenceError, match="other than 0 and 1"):
        decoded(joined(InferRequest("m", (other,))), signature)


def test_an_answer_of_the_same_size_with_an_error() -> None:
    signature = signature_of([fp32("x")], [fp32("y")])
    body = b"".join(codec.encode_response(None, (fp32("y"),)))
    assert codec.decode_response(body, None, signature) == (fp32("y"),)
    error = codec.encode_error(InferenceError(codec.ErrorCode.MODEL_FAILED, "no"))
    with pytest.raises(codec.CarriedError):
        codec.decode_response(error.ljust(len(body), b"\0"), None, signature)
