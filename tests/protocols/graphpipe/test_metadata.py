"""GraphPipe's metadata: the FlatBuffer, the JSON, and what of it becomes a signature."""

from __future__ import annotations

import json

import pytest
from graphpipe import convert

from interlingua.protocols.graphpipe import metadata
from interlingua.protocols.graphpipe.metadata import Description, Port
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    ModelMetadata,
    ServerMetadata,
    Signature,
    TensorSpec,
)
from tests.protocols.graphpipe import oracle

TOLD = ModelMetadata(
    "digits",
    Signature(
        (
            TensorSpec("image", Datatype.FP32, (-1, 8, 8), description="grey"),
            TensorSpec("flip", Datatype.BOOL, (-1,)),
        ),
        (TensorSpec("label", Datatype.BYTES, (-1,)), TensorSpec("logits", Datatype.BF16, (-1, 10))),
    ),
    versions=("1", "3"),
    platform="onnxruntime_onnx",
    description="handwritten",
    server=ServerMetadata("here", "0.7"),
)
DESCRIBED = Description(
    "digits",
    "0.7",
    "here",
    "handwritten; platform onnxruntime_onnx, version 3",
    (Port("image", "grey", (-1, 8, 8), 10), Port("flip", "", (-1,), 1)),
    (Port("label", "", (-1,), 12), Port("logits", "", (-1, 10), 0)),
)


def test_a_model_is_described() -> None:
    """BOOL as what it travels as, BF16 as Null: it cannot be carried. The server and its version are the
    software's; what is known of the model's stands in the description."""
    assert metadata.describe(TOLD) == DESCRIBED
    assert metadata.describe(TOLD, "1").description == "handwritten; platform onnxruntime_onnx, version 1"
    bare = ModelMetadata("m", Signature((), ()), ("2",))
    assert metadata.describe(bare).description == "version 2"
    assert metadata.describe(ModelMetadata("m", Signature((), ()))) == Description(
        "m", "", "interlingua", "", (), ()
    )


def test_flatc_and_the_published_client_read_our_metadata() -> None:
    body = metadata.encode_metadata(DESCRIBED)
    assert oracle.read_metadata(body) == {
        "name": b"digits",
        "version": b"0.7",
        "server": b"here",
        "description": b"handwritten; platform onnxruntime_onnx, version 3",
        "inputs": [
            {"name": b"image", "description": b"grey", "shape": [-1, 8, 8], "type": 10},
            {"name": b"flip", "description": b"", "shape": [-1], "type": 1},
        ],
        "outputs": [
            {"name": b"label", "description": b"", "shape": [-1], "type": 12},
            {"name": b"logits", "description": b"", "shape": [-1, 10], "type": 0},
        ],
    }
    theirs = convert.deserialize_metadata_response(bytearray(body))
    assert (theirs.Name(), theirs.Inputs(0).ShapeAsNumpy().tolist()) == (b"digits", [-1, 8, 8])


def test_it_survives_the_wire() -> None:
    assert metadata.decode_metadata(metadata.encode_metadata(DESCRIBED)) == DESCRIBED


def test_a_signature_comes_of_it() -> None:
    told = Description(
        "", "v1", "graphpipe-go", "", (Port("a", "first", (-7, 3), 10),), (Port("b", "", (), 12),)
    )
    assert metadata.model_metadata(told, "given") == ModelMetadata(
        "given",
        Signature(
            (TensorSpec("a", Datatype.FP32, (-1, 3), description="first"),),
            (TensorSpec("b", Datatype.BYTES, ()),),
        ),
        (),
        "graphpipe-go",
    )
    assert metadata.model_metadata(told, "given").server == ServerMetadata("graphpipe-go", "v1")


@pytest.mark.parametrize("code", [0, 13, 255])
def test_a_tensor_without_a_usable_type_needs_a_declared_signature(code: int) -> None:
    told = Description("m", "", "", "", (Port("a", "", (), code),), ())
    with pytest.raises(InferenceError, match=f"tensor 'a' no usable type \\({code}\\): declare") as caught:
        metadata.model_metadata(told, "m")
    assert caught.value.code is ErrorCode.UNSUPPORTED


def test_absent_fields_are_empty() -> None:
    body = bytes.fromhex("08000000 04000400 04000000")
    assert metadata.decode_metadata(body) == Description("", "", "", "", (), ())


def test_text_that_is_not_utf8() -> None:
    body = metadata.encode_metadata(DESCRIBED)
    with pytest.raises(InferenceError, match="the description of tensor 'image' is not UTF-8"):
        metadata.decode_metadata(body.replace(b"grey", b"gr\xff\xff"))
    with pytest.raises(InferenceError, match="the model's metadata is not UTF-8"):
        metadata.decode_metadata(body.replace(b"digits", b"digit\xff"))
    with pytest.raises(InferenceError, match="is not UTF-8") as caught:
        metadata.encode_metadata(Description("\udcff", "", "", "", (), ()))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_what_metadata_unfold_to_is_bounded() -> None:
    count = 2000
    body = metadata.encode_metadata(
        Description("", "", "", "", (Port("a" * 30_000, "", (1,), 10), *[Port("", "", (), 0)] * count), ())
    )
    view = bytearray(body)
    # let every element of the vector be the first table
    start = body.index((count + 1).to_bytes(4, "little")) + 4
    first = start + int.from_bytes(body[start : start + 4], "little")
    for at in range(start, start + 4 * (count + 1), 4):
        view[at : at + 4] = (first - at).to_bytes(4, "little")
    with pytest.raises(InferenceError, match="unfolds to more than 16 times"):
        metadata.decode_metadata(bytes(view))


def test_json_is_what_the_original_servers_print() -> None:
    told = Description("m", "", "go", "", (Port("a", "", (), 10), Port("b", "é", (-1, 3), 8)), ())
    printed = metadata.encode_json(told)
    assert printed.startswith(b'{\n    "Name": "m",\n    "Version": "",\n    "Server": "go",')
    assert json.loads(printed) == {
        "Name": "m",
        "Version": "",
        "Server": "go",
        "Description": "",
        "Inputs": [
            {"Name": "a", "Description": "", "Shape": None, "Type": 10},
            {"Name": "b", "Description": "é", "Shape": [-1, 3], "Type": 8},
        ],
        "Outputs": None,
    }
