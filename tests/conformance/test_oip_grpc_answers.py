"""Recorded gRPC traffic of Triton, MLServer and KServe, read by our tables."""

from __future__ import annotations

import base64

import pytest

from interlingua.protocols.oip.codec_grpc import OipGrpcReplyForm, encode_infer
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    ServerMetadata,
    SharedMemoryRef,
)
from tests.protocols.oip.grpc_exchange import (
    CALLS,
    RPCS,
    Recording,
    arriving,
    failed,
    inferred,
    opened,
    recordings,
)

RECORDINGS = recordings("triton", "mlserver", "kserve")
OF_TRITON = [recording for recording in RECORDINGS if recording.server == "triton"]
RESULTS = {
    Operation.LIVE: Readiness,
    Operation.READY: Readiness,
    Operation.MODEL_READY: Readiness,
    Operation.SERVER_METADATA: ServerMetadata,
    Operation.MODEL_METADATA: ModelMetadata,
    Operation.INFER: InferResponse,
}
CODES = {
    "NOT_FOUND": {ErrorCode.NOT_FOUND},
    "INVALID_ARGUMENT": {ErrorCode.INVALID_TENSOR},
    "INTERNAL": {ErrorCode.MODEL_FAILED},
    "UNKNOWN": {ErrorCode.MODEL_FAILED},
    "UNIMPLEMENTED": {ErrorCode.UNSUPPORTED},
}
NUMBERS = {5: "NOT_FOUND", 3: "INVALID_ARGUMENT", 13: "INTERNAL", 2: "UNKNOWN", 12: "UNIMPLEMENTED"}
# what Triton refuses before its core sees the request, and some of what its core refuses
REFUSED_BY_THE_CODEC = {
    "mixed_raw_and_contents",
    "contents_two_fields",
    "contents_short",
    "contents_BF16",
    "raw_too_few",
    "raw_long",
    "no_data",
    "unknown_dtype",
    "neg_dim",
    "neg2_dim",
    "huge_dim",
    "bytes_raw_bad",
    "bytes_raw_few",
    "params_uint64",
    "params_triton_foo",
    "params_prio_str",
    "params_timeout_u64",
    "params_seq_bool",
    "cls0",
    "cls_str",
    "shm_nosize",
}
# integers that Triton narrowed by dropping bits, and we refuse
WRAPPED = {"contents_INT8", "contents_INT16", "contents_UINT8", "contents_UINT16"}


def each(chosen: list[Recording]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recording", chosen, ids=str)


def placements(recording: Recording) -> dict[str, SharedMemoryRef]:
    """Where the recorded request wanted its outputs: what the encoder of a call remembers."""
    if recording.request is None or recording.answer.code or not recording.name.startswith("shm_"):
        return {}
    request, _ = inferred(recording.request)
    return {output.name: output.placement for output in request.outputs or () if output.placement}


def decoded(recording: Recording) -> object:
    return CALLS[RPCS[recording.rpc]].decode(placements(recording), recording.answer)


def test_there_is_something_to_read() -> None:
    assert len(RECORDINGS) > 150
    assert {recording.rpc for recording in RECORDINGS} == set(RPCS)
    assert {recording.name for recording in OF_TRITON} >= REFUSED_BY_THE_CODEC | WRAPPED


@each([recording for recording in RECORDINGS if not recording.answer.code])
def test_a_good_answer_is_a_result(recording: Recording) -> None:
    result = decoded(recording)
    assert isinstance(result, RESULTS[RPCS[recording.rpc]])


@each([recording for recording in RECORDINGS if recording.answer.code])
def test_a_bad_answer_is_its_error(recording: Recording) -> None:
    if recording.rpc == "ModelReady" and recording.answer.code == 5:
        assert decoded(recording) == Readiness(False, recording.answer.details)
        return
    with pytest.raises(InferenceError) as caught:
        decoded(recording)
    assert caught.value.code in CODES[NUMBERS[recording.answer.code]]
    assert caught.value.message == recording.answer.details


@each([r for r in OF_TRITON if not r.answer.code and r.rpc == "ModelInfer"])
def test_we_write_the_bytes_that_triton_writes(recording: Recording) -> None:
    response = decoded(recording)
    assert isinstance(response, InferResponse)
    assert encode_infer(OipGrpcReplyForm(response.id), response).message == recording.answer.message


@each([r for r in OF_TRITON if not r.answer.code and r.told and r.rpc == "ModelInfer"])
def test_outputs_are_those_recorded(recording: Recording) -> None:
    response = decoded(recording)
    assert isinstance(response, InferResponse)
    raws = [base64.b64decode(raw) for raw in recording.told.get("raw_output_contents", [])]
    found = [b"" if isinstance(t.data, SharedMemoryRef) else bytes(t.data) for t in response.outputs]
    assert found == raws
    told = recording.told.get("outputs", [])
    assert [(t.name, t.datatype, list(t.shape)) for t in response.outputs] == [
        (output["name"], Datatype(output["datatype"]), [int(side) for side in output.get("shape", [])])
        for output in told
    ]


@each([r for r in OF_TRITON if r.request is not None and not r.answer.code])
def test_requests_that_triton_answered_are_read(recording: Recording) -> None:
    assert recording.request is not None
    if recording.rpc != "ModelInfer":
        found = opened(recording.rpc, recording.request)
        assert found.action.operation is RPCS[recording.rpc]
        return
    if recording.name in WRAPPED:
        with pytest.raises(InferenceError, match="element 1 is .*, outside of"):
            inferred(recording.request)
        return
    request, _ = inferred(recording.request)
    assert request.inputs
    call, _ = CALLS[Operation.INFER].encode(request, None)
    again = arriving(call)
    assert again.action.decode is not None
    assert again.action.decode(again, None)[0] == request  # type: ignore[arg-type]


@each([r for r in OF_TRITON if r.answer.code and r.rpc == "ModelInfer"])
def test_requests_that_triton_refused(recording: Recording) -> None:
    """With the same status where it is the message that is wrong; the rest is for the model to say."""
    assert recording.request is not None
    if recording.name not in REFUSED_BY_THE_CODEC:
        assert inferred(recording.request)
        return
    with pytest.raises(InferenceError) as caught:
        inferred(recording.request)
    assert failed(caught.value).code == recording.answer.code
