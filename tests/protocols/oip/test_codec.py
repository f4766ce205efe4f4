"""Parameters, requested outputs and the error tables that HTTP and gRPC share."""

from __future__ import annotations

import pytest

from interlingua.protocols.grpc_status import CODE_OF_GRPC_STATUS, GRPC_STATUS
from interlingua.protocols.oip.codec import (
    CODE_OF_HTTP_STATUS,
    EMPTY_FINAL_RESPONSE,
    distinct_outputs,
    input_tensor,
    join_parameters,
    output_parameters,
    requested_output,
    split_parameters,
)
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
)
from interlingua.schemas.errors import HTTP_STATUS

PLACE = {"shared_memory_region": "r", "shared_memory_offset": 4, "shared_memory_byte_size": 8}


def test_every_error_code_has_a_status() -> None:
    assert set(HTTP_STATUS) == set(GRPC_STATUS) == set(ErrorCode)
    assert all(400 <= status <= 599 for status in HTTP_STATUS.values())
    assert all(0 < status <= 16 for status in GRPC_STATUS.values())


def test_statuses_read_back_as_an_error_that_is_answered_alike() -> None:
    for status in set(HTTP_STATUS.values()) - {422, 502}:
        assert HTTP_STATUS[CODE_OF_HTTP_STATUS[status]] == status
    for status in set(GRPC_STATUS.values()):
        assert GRPC_STATUS[CODE_OF_GRPC_STATUS[status]] == status


def test_parameters_go_to_their_fields() -> None:
    fields = split_parameters(
        {
            "sequence_id": 7, "sequence_start": True, "priority": 2, "timeout": 500, "binary_data_output": True,
            "headers": "mine", "b": False, "f": 1.5, "i": -3, EMPTY_FINAL_RESPONSE: True,
        },
        streams=True,
    )  # fmt: skip
    assert fields.sequence == Sequence(7, start=True)
    assert (fields.priority, fields.timeout_us) == (2, 500)
    assert fields.parameters == {"headers": "mine", "b": False, "f": 1.5, "i": -3}


@pytest.mark.parametrize("nothing", [0, ""])
def test_a_sequence_without_an_id_is_none(nothing: object) -> None:
    assert split_parameters({"sequence_id": nothing, "sequence_start": True}).sequence is None


def test_the_flags_of_a_sequence_without_an_id_go_on() -> None:
    """Triton's models read them, unless they have sequences, which require an id."""
    given = {"sequence_start": True, "sequence_end": True}
    fields = split_parameters({"sequence_id": 0, **given})
    assert (fields.sequence, fields.parameters) == (None, given)
    assert join_parameters(InferRequest("m", (), parameters=fields.parameters)) == given
    assert not split_parameters({"sequence_start": False}).parameters
    with pytest.raises(InferenceError, match="request parameter 'sequence_start' is a reserved name"):
        join_parameters(InferRequest("m", (), parameters={"sequence_start": "yes"}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sequence_id": True}, "'sequence_id' must be an unsigned integer or a string, got a boolean"),
        ({"sequence_id": -1}, "'sequence_id' must be an unsigned integer or a string, got -1"),
        ({"sequence_id": None}, "'sequence_id' must be .*, got null"),
        ({"sequence_start": 1}, "'sequence_start' must be a boolean, got an integer"),
        ({"priority": "1"}, "'priority' must be an unsigned integer, got a string"),
        ({"timeout": -5}, "'timeout' must be an unsigned integer, got -5"),
        ({"timeout": 1.0}, "'timeout' must be an unsigned integer, got a float"),
        ({"priority": 2**64}, "'priority' must be an unsigned integer"),
        ({"mine": [1]}, "'mine' has invalid type"),
        ({"mine": {}}, "'mine' has invalid type"),
        ({"mine": None}, "'mine' has invalid type"),
        ({"triton_x": 1}, "reserved for Triton usage and should not be specified. Got 'triton_x'"),
        ({EMPTY_FINAL_RESPONSE: True}, f"should not be specified. Got '{EMPTY_FINAL_RESPONSE}'"),
    ],
)
def test_bad_parameters_are_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        split_parameters(given)
    assert caught.value.code is ErrorCode.INVALID_TENSOR


@pytest.mark.parametrize("name", ["priority", "sequence_id", "binary_data_output", "triton_x"])
def test_own_parameters_may_not_take_a_reserved_name(name: str) -> None:
    with pytest.raises(InferenceError, match=f"'{name}'") as caught:
        join_parameters(InferRequest("m", (), parameters={name: 1}))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_requested_outputs() -> None:
    assert requested_output("o", {}) == RequestedOutput("o")
    assert requested_output("o", {"classification": 3, "own": "x", "odd": []}) == RequestedOutput(
        "o", classification=3, parameters={"own": "x"}
    )
    placed = requested_output("o", PLACE)
    assert placed.placement == SharedMemoryRef("r", 4, 8)
    assert requested_output("o", output_parameters(placed)) == placed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"classification": -1}, "parameter 'classification' of output 'o' must be an unsigned integer"),
        ({"classification": "2"}, "parameter 'classification' of output 'o'"),
        ({"shared_memory_region": 1}, "'shared_memory_region' of output 'o' must be a non-empty string"),
        ({"shared_memory_region": "r"}, "no shared_memory_byte_size"),
        ({**PLACE, "shared_memory_offset": -1}, "'shared_memory_offset' of output 'o'"),
        ({**PLACE, "classification": 1}, "shared memory together with classification"),
        ({**PLACE, "binary_data": True}, "shared memory together with"),
    ],
)
def test_bad_output_parameters_are_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        requested_output("o", given)
    assert caught.value.code is ErrorCode.INVALID_TENSOR


def test_output_parameters_may_not_take_a_reserved_name() -> None:
    with pytest.raises(InferenceError, match="'binary_data' of requested output 'o'"):
        output_parameters(RequestedOutput("o", parameters={"binary_data": True}))


def test_each_output_is_requested_once() -> None:
    a, b, again = RequestedOutput("a", 1), RequestedOutput("b"), RequestedOutput("a", 2)
    assert distinct_outputs([a, b, again]) == (a, b)
    assert distinct_outputs([]) is None


def test_a_wrong_size_is_reported_in_tritons_words() -> None:
    with pytest.raises(
        InferenceError, match="input byte size mismatch for input 'x' for model 'm'. Expected 16, got 12"
    ):
        input_tensor("m", "x", Datatype.FP32, (4,), bytes(12))
