"""OIP over HTTP: what one side writes, the other reads back; broken bytes end in one kind of error."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlingua.protocols.oip.client import HTTP_CALLS, HTTP_JSON_CALLS
from interlingua.protocols.oip.client_http import NO_FORM
from interlingua.protocols.wire import HttpReply, HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    RequestedOutput,
    Sequence,
    ServerMetadata,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)
from tests.protocols.oip.http_exchange import arriving, decoded, opened, post, reply
from tests.strategies import datatypes, names, tensor_tuples

NO_SIGNATURE = Signature((), ())
RESERVED = {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"}
INFER = HTTP_CALLS[Operation.INFER]

texts = st.text(st.characters(codec="utf-8"), max_size=8)
versions = st.just("") | st.integers(0, 2**63 - 1).map(str)
parameters = st.dictionaries(
    texts.filter(lambda key: key not in RESERVED and not key.startswith("triton_")),
    st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    max_size=3,
)
sequences = st.builds(
    Sequence, st.integers(1, 2**64 - 1) | texts.filter(bool), start=st.booleans(), end=st.booleans()
)
places = st.builds(SharedMemoryRef, texts.filter(bool), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
requested = (
    st.builds(RequestedOutput, names(), classification=st.integers(0, 5))
    | st.builds(RequestedOutput, names(), placement=places)
    | st.builds(
        RequestedOutput,
        names(),
        parameters=st.dictionaries(st.text(string.ascii_uppercase), st.integers(0, 9), max_size=2),
    )
)
outputs = st.none() | st.lists(
    requested, min_size=1, max_size=3, unique_by=lambda output: output.name
).map(tuple)  # fmt: skip


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Tensors, some of them in shared memory."""
    return tuple(
        replace(tensor, data=draw(places)) if draw(st.booleans()) else tensor
        for tensor in draw(tensor_tuples(min_size=0))
    )


def requests(tensors: st.SearchStrategy[tuple[Tensor, ...]]) -> st.SearchStrategy[InferRequest]:
    return st.builds(
        InferRequest,
        model=names(),
        inputs=tensors,
        outputs=outputs,
        version=versions,
        id=texts,
        parameters=parameters,
        sequence=st.none() | sequences,
        priority=st.integers(0, 2**64 - 1),
        timeout_us=st.integers(0, 2**64 - 1),
    )


def responses(tensors: st.SearchStrategy[tuple[Tensor, ...]]) -> st.SearchStrategy[InferResponse]:
    return st.builds(
        InferResponse, model=names(), outputs=tensors, version=texts, id=texts, parameters=parameters
    )


def fits_json(tensor: Tensor, allowed: set[Datatype]) -> bool:
    if tensor.datatype is Datatype.BYTES:
        try:
            return all(isinstance(element.decode(), str) for element in tensor.elements())
        except UnicodeDecodeError:
            return False
    return tensor.datatype in allowed and bool(np.isfinite(tensor.numpy()).all())


@given(requests(inputs()))
def test_requests_come_through_as_binary_data(request: InferRequest) -> None:
    sent, _ = INFER.encode(request, None)
    asked, form = decoded(arriving(sent), NO_SIGNATURE)
    assert asked == request
    assert form.id == request.id
    wanted = {output.name for output in request.outputs or () if output.placement is None}
    assert form.binary == wanted
    assert form.all_binary == (request.outputs is None)


@given(requests(tensor_tuples()))
def test_requests_come_through_as_json_or_are_refused(request: InferRequest) -> None:
    carried = set(Datatype) - {Datatype.BF16}
    if not all(fits_json(tensor, carried) for tensor in request.inputs):
        with pytest.raises(InferenceError) as caught:
            HTTP_JSON_CALLS[Operation.INFER].encode(request, None)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE
        return
    sent, _ = HTTP_JSON_CALLS[Operation.INFER].encode(request, None)
    if any(tensor.datatype is Datatype.FP16 for tensor in request.inputs):
        # MLServer takes these, we are as Triton
        with pytest.raises(InferenceError) as caught:
            decoded(arriving(sent), NO_SIGNATURE)
        assert caught.value.code is ErrorCode.INVALID_TENSOR
        return
    asked, form = decoded(arriving(sent), NO_SIGNATURE)
    assert asked == request
    assert not form.binary
    assert not form.all_binary


def answer_to(request: InferRequest, calls: Any, response: InferResponse) -> InferResponse:
    """``response`` from the server's side to the client's, in the form that ``request`` asks for."""
    sent, placements = calls[Operation.INFER].encode(request, None)
    message = arriving(sent)
    _, form = decoded(message, NO_SIGNATURE)
    answer = opened(message).action.encode(form, response)
    result: InferResponse = calls[Operation.INFER].decode(placements, reply(answer))
    return result


@given(responses(tensor_tuples(min_size=0)), st.booleans())
def test_answers_come_through_as_binary_data(response: InferResponse, listed: bool) -> None:
    asked = tuple(RequestedOutput(tensor.name) for tensor in response.outputs) if listed else None
    request = InferRequest("m", (), asked, id=response.id)
    assert answer_to(request, HTTP_CALLS, response) == response


@given(responses(tensor_tuples(min_size=0)))
def test_answers_come_through_as_json_or_are_refused(response: InferResponse) -> None:
    request = InferRequest("m", (), id=response.id)
    carried = set(Datatype) - {Datatype.BF16, Datatype.FP16}
    if all(fits_json(tensor, carried) for tensor in response.outputs):
        assert answer_to(request, HTTP_JSON_CALLS, response) == response
    else:
        with pytest.raises(InferenceError) as caught:
            answer_to(request, HTTP_JSON_CALLS, response)
        # the caller could have asked for binary data, where it is a NaN that JSON has not
        assert caught.value.code in (ErrorCode.UNREPRESENTABLE, ErrorCode.INVALID_TENSOR)


@given(st.lists(texts), st.data())
def test_text_comes_through_as_json(elements: list[str], data: st.DataObject) -> None:
    packed = pack_bytes(element.encode() for element in elements)
    response = InferResponse(
        "m", (Tensor("x", Datatype.BYTES, (len(elements),), memoryview(packed)),), id="q"
    )
    request = InferRequest("m", response.outputs, id="q")
    assert answer_to(request, HTTP_JSON_CALLS, response) == response
    sent, _ = HTTP_JSON_CALLS[Operation.INFER].encode(request, None)
    assert decoded(arriving(sent), NO_SIGNATURE)[0] == request


specs = st.builds(
    TensorSpec, names(), datatypes(), st.lists(st.integers(-1, 2**63 - 1), max_size=4).map(tuple)
)
signatures = st.builds(
    Signature, st.lists(specs, max_size=3).map(tuple), st.lists(specs, max_size=3).map(tuple)
)


@given(
    st.builds(
        ModelMetadata, names(), signatures, versions=st.lists(texts, max_size=3).map(tuple), platform=texts
    )
)
def test_model_metadata_comes_through(metadata: ModelMetadata) -> None:
    call = HTTP_CALLS[Operation.MODEL_METADATA]
    sent, form = call.encode(ModelRef(metadata.name), None)
    message = opened(arriving(sent))
    assert message.model == metadata.name
    assert call.decode(form, reply(message.action.encode(message, metadata))) == metadata


@given(st.builds(ServerMetadata, texts, texts, st.lists(texts, max_size=4).map(tuple)))
def test_server_metadata_comes_through(metadata: ServerMetadata) -> None:
    call = HTTP_CALLS[Operation.SERVER_METADATA]
    sent, form = call.encode(None, None)
    message = opened(arriving(sent))
    assert call.decode(form, reply(message.action.encode(message, metadata))) == metadata


@st.composite
def broken(draw: st.DrawFn, body: bytes) -> bytes:
    """``body`` cut short, or with some bytes replaced, removed or added."""
    damaged = bytearray(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(damaged)))
        width = draw(st.integers(0, 3))
        damaged[place : place + width] = draw(
            st.binary(max_size=3)
            | st.sampled_from([b"null", b"[]", b"{}", b"-1", b"1e9", b"NaN", b'"', b"99999999999999999999"])
        )
    return bytes(damaged)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(requests(inputs()), st.booleans(), st.data())
def test_broken_requests_raise_nothing_else(request: InferRequest, binary: bool, data: st.DataObject) -> None:
    calls = HTTP_CALLS if binary else HTTP_JSON_CALLS
    try:
        sent, _ = calls[Operation.INFER].encode(request, None)
    except InferenceError:
        return  # JSON cannot carry it
    message = arriving(sent)
    lengths = st.integers(-1, len(message.body) + 1).map(str) | st.text(max_size=3)
    headers = dict(message.headers)
    if data.draw(st.booleans()):
        headers["inference-header-content-length"] = data.draw(lengths)
    spoilt = HttpRequest("POST", message.path, headers=headers, body=data.draw(broken(message.body)))
    signature = data.draw(signatures)
    try:
        asked, _ = decoded(spoilt, signature)
    except InferenceError:
        return
    for tensor in asked.inputs:  # whatever was accepted is whole
        if isinstance(tensor.data, memoryview):
            assert Tensor.checked(tensor.name, tensor.datatype, tensor.shape, tensor.data) == tensor


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(responses(tensor_tuples(min_size=0)), st.booleans(), st.data())
def test_broken_answers_raise_nothing_else(
    response: InferResponse, binary: bool, data: st.DataObject
) -> None:
    message = opened(post(b""))
    form = decoded(post(b'{"inputs":[],"parameters":{"binary_data_output":true}}'), NO_SIGNATURE)[1]
    plain = decoded(post(b'{"inputs":[]}'), NO_SIGNATURE)[1]
    try:
        whole = reply(message.action.encode(form if binary else plain, response))
    except InferenceError:
        return  # JSON cannot carry it
    status = data.draw(st.sampled_from([200, 200, 200, 400, 422, 500]))
    spoilt = HttpReply(status, whole.headers, data.draw(broken(bytes(whole.body))))
    try:
        answered = INFER.decode(NO_FORM, spoilt)
    except InferenceError as error:
        assert status != 200 or error.code is ErrorCode.BAD_UPSTREAM  # noqa: PT017 - either may happen
        return
    for tensor in answered.outputs:
        assert Tensor.checked(tensor.name, tensor.datatype, tensor.shape, tensor.view) == tensor


@given(st.binary(max_size=60), st.sampled_from(sorted(HTTP_CALLS, key=lambda operation: operation.value)))
def test_any_answer_is_read_or_refused(body: bytes, operation: Operation) -> None:
    call = HTTP_CALLS[operation]
    for status in (200, 404):
        form: Any = NO_FORM if operation is Operation.INFER else None
        if operation is Operation.INFER_STREAM:
            form = call.encode(InferRequest("m", ()), Signature((), ()))[1]
        try:
            call.decode(form, HttpReply(status, {}, body))
        except InferenceError as error:
            assert error.message  # noqa: PT017 - either may happen
