"""Bodies that tritonclient builds are read, and bodies that are written tritonclient reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from interlingua.schemas import Datatype, InferResponse, RequestedOutput, Sequence, Signature, Tensor
from tests.protocols.oip.http_exchange import decoded, opened, post, reply

NO_SIGNATURE = Signature((), ())
BINARY = "inference-header-content-length"

ARRAYS: dict[Datatype, Any] = {
    datatype: np.array([[1, 0, 1]]).astype(datatype.dtype)
    for datatype in Datatype
    if datatype is not Datatype.BYTES
}
ARRAYS[Datatype.BYTES] = np.array([[b"\xff\0", "é".encode(), b""]], object)
TEXT = np.array([["a", "é", ""]], object)


def body_of(values: Any, datatype: Datatype, binary: bool, **options: Any) -> tuple[bytes, dict[str, str]]:
    """What tritonclient sends for one input."""
    tensor = triton.InferInput("x", list(values.shape), datatype.value)
    tensor.set_data_from_numpy(values, binary_data=binary)
    body, size = triton.InferenceServerClient.generate_request_body([tensor], **options)
    return body, {} if size is None else {BINARY: str(size)}


@pytest.mark.parametrize("datatype", list(Datatype))
def test_binary_data(datatype: Datatype) -> None:
    values = ARRAYS[datatype]
    body, headers = body_of(values, datatype, True)
    message = post(body, headers)
    asked, form = decoded(message, NO_SIGNATURE)
    assert asked.inputs == (Tensor.from_numpy("x", values, datatype),)
    answer = reply(
        opened(message).action.encode(form, InferResponse("m", (asked.inputs[0].renamed("y"),), "1"))
    )
    length = answer.headers[BINARY]
    result = triton.InferenceServerClient.parse_response_body(bytes(answer.body), header_length=int(length))
    np.testing.assert_array_equal(result.as_numpy("y"), values)


@pytest.mark.parametrize("datatype", sorted(set(Datatype) - {Datatype.FP16, Datatype.BF16}, key=repr))
def test_json(datatype: Datatype) -> None:
    values = TEXT if datatype is Datatype.BYTES else ARRAYS[datatype]
    outputs = [triton.InferRequestedOutput("y", binary_data=False)]
    body, headers = body_of(values, datatype, False, outputs=outputs)
    message = post(body, headers)
    asked, form = decoded(message, NO_SIGNATURE)
    assert asked.inputs == (Tensor.from_numpy("x", values, datatype),)
    answer = reply(
        opened(message).action.encode(form, InferResponse("m", (asked.inputs[0].renamed("y"),), "1"))
    )
    assert BINARY not in answer.headers
    result = triton.InferenceServerClient.parse_response_body(bytes(answer.body))
    np.testing.assert_array_equal(result.as_numpy("y"), values)


def test_everything_that_tritonclient_can_ask() -> None:
    body, headers = body_of(
        ARRAYS[Datatype.FP32],
        Datatype.FP32,
        True,
        outputs=[triton.InferRequestedOutput("y", class_count=3), triton.InferRequestedOutput("z")],
        request_id="q",
        sequence_id="s",
        sequence_start=True,
        priority=2,
        timeout=500,
        parameters={"own": 1.5},
    )
    asked, form = decoded(post(body, headers), NO_SIGNATURE)
    assert asked.outputs == (RequestedOutput("y", classification=3), RequestedOutput("z"))
    assert (asked.id, asked.sequence, asked.priority, asked.timeout_us) == (
        "q",
        Sequence("s", start=True),
        2,
        500,
    )
    assert asked.parameters == {"own": 1.5}
    assert (form.id, form.binary) == ("q", {"y", "z"})


def test_empty_binary_answers() -> None:
    empty = Tensor.from_numpy("y", np.zeros((0, 3), np.float32))
    body, headers = body_of(np.zeros((0, 3), np.float32), Datatype.FP32, True)
    message = post(body, headers)
    asked, form = decoded(message, NO_SIGNATURE)
    assert asked.inputs == (empty.renamed("x"),)
    answer = reply(opened(message).action.encode(form, InferResponse("m", (empty,), "1")))
    result = triton.InferenceServerClient.parse_response_body(bytes(answer.body))
    assert result.as_numpy("y").shape == (0, 3)
