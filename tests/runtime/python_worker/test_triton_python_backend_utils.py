"""What a model imports does what Triton's does."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from interlingua.runtime.python_worker import triton_python_backend_utils as pb


class Delivered:
    """What a sender has delivered."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, bool]] = []
        self.sender = pb.InferenceResponseSender(lambda *what: self.got.append(what), lambda: False, True)


def test_a_sender_sends_until_the_final_flag() -> None:
    delivered = Delivered()
    response = pb.InferenceResponse([])
    delivered.sender.send(response)
    for wrong, said in (({}, "must be provided"), ({"flags": 6}, "Unsupported flag provided")):
        with pytest.raises(pb.TritonModelException, match=said):
            delivered.sender.send(**wrong)
    delivered.sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    assert delivered.got == [(response, False), (None, True)]
    with pytest.raises(pb.TritonModelException, match="has been closed"):
        delivered.sender.send(response)
    del delivered.sender
    assert len(delivered.got) == 2


def test_a_sender_that_is_dropped_ends_the_answer() -> None:
    delivered = Delivered()
    del delivered.sender
    assert delivered.got == [(None, True)]


def test_tensors() -> None:
    tensor = pb.Tensor("x", np.zeros((2, 3), np.float32))
    assert (tensor.name(), tensor.shape(), tensor.triton_dtype(), tensor.is_cpu()) == (
        "x",
        [2, 3],
        "TYPE_FP32",
        True,
    )
    assert pb.Tensor("s", np.array(["a", "b"])).triton_dtype() == "TYPE_STRING"
    assert pb.Tensor("b", np.zeros(1, ">i8")).triton_dtype() == "TYPE_INT64"
    with pytest.raises(pb.TritonModelException, match="tensor 'x' needs a NumPy array, and was given a list"):
        pb.Tensor("x", [1, 2])  # type: ignore[arg-type]
    with pytest.raises(pb.TritonModelException, match="one is a int"):
        pb.InferenceResponse([7])  # type: ignore[list-item]


def test_looking_up() -> None:
    tensor = pb.Tensor("x", np.zeros(1))
    request = pb.InferenceRequest(inputs=[tensor], requested_output_names=["y"], model_name="m")
    assert pb.get_input_tensor_by_name(request, "x") is tensor
    assert pb.get_input_tensor_by_name(request, "y") is None
    assert pb.get_output_tensor_by_name(pb.InferenceResponse([tensor]), "x") is tensor
    config = {
        "input": [{"name": "x", "dims": [1]}],
        "output": [],
        "model_transaction_policy": {"decoupled": True},
    }
    assert pb.get_input_config_by_name(config, "x") == {"name": "x", "dims": [1]}
    assert pb.get_output_config_by_name(config, "x") is None
    assert pb.using_decoupled_model_transaction_policy(config)
    assert not pb.using_decoupled_model_transaction_policy({})


def test_datatypes() -> None:
    assert pb.triton_string_to_numpy("TYPE_BF16") is ml_dtypes.bfloat16
    assert pb.triton_string_to_numpy("TYPE_NONE") is None
    assert [pb.triton_to_numpy_type(number) for number in (1, 6, 11, 13, 15)] == [
        bool,
        np.int8,
        np.float32,
        np.object_,
        None,
    ]
    for name, kind in pb.TRITON_STRING_TO_NUMPY.items():
        assert pb.numpy_to_triton_type(kind) == name


def test_strings_as_they_are_sent() -> None:
    array = np.array([[b"a", "é"], [b"", 7]], object)
    packed = pb.serialize_byte_tensor(array)
    assert packed is not None
    assert packed.item() == b"\1\0\0\0a\2\0\0\0\xc3\xa9\0\0\0\0\1\0\0\x007"
    assert pb.deserialize_bytes_tensor(packed.item()).tolist() == [b"a", "é".encode(), b"", b"7"]
    assert pb.serialize_byte_tensor(np.array([], object)) is None


def test_requests() -> None:
    request = pb.InferenceRequest("id", 5, [], ["a"], "m", 2, 3, 4, parameters={"k": 1})
    assert (request.request_id(), request.correlation_id(), request.flags(), request.timeout()) == (
        "id",
        5,
        3,
        4,
    )
    assert (request.model_name(), request.model_version()) == ("m", 2)
    assert json.loads(request.parameters()) == {"k": 1}
    request.set_requested_output_names(["b"])
    request.set_flags(1)
    assert (request.requested_output_names(), request.flags()) == (["b"], 1)
    assert not request.is_cancelled()
    for call in (request.get_response_sender, request.exec):
        with pytest.raises(pb.TritonModelException):
            call()


def test_a_configuration_is_completed() -> None:
    config = pb.ModelConfig(
        {"max_batch_size": 0, "input": [{"name": "x", "data_type": "TYPE_INT32", "dims": [1]}]}
    )
    config.add_input({"name": "x", "data_type": "TYPE_INT32", "dims": [2]})
    config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [-1]})
    config.set_max_batch_size(8)
    config.set_dynamic_batching()
    assert config.as_dict() == {
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
        "dynamic_batching": {},
    }
    with pytest.raises(ValueError, match="input 'x' is a TYPE_INT32, not a TYPE_FP32"):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [1]})
    with pytest.raises(ValueError, match="has no dims"):
        config.add_output({"name": "z", "data_type": "TYPE_FP32"})
    with pytest.raises(ValueError, match="max_batch_size 8, not 4"):
        config.set_max_batch_size(4)
