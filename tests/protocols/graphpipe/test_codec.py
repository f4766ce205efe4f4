"""GraphPipe's codec against the code that flatc generates and the published Python client, and the
rules for names, defaults, widening and errors."""

from __future__ import annotations

import struct

import flatbuffers
import numpy as np
import pytest
from graphpipe import convert

from interlingua.protocols.graphpipe import codec, writer
from interlingua.protocols.graphpipe.capability import OVER_HTTP
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Signature,
    Tensor,
)
from interlingua.schemas.graphpipe import TYPES
from tests.protocols.graphpipe import oracle
from tests.protocols.graphpipe.messages import (
    AB,
    ONES,
    TWOS,
    decoded,
    example,
    fp32,
    joined,
    published,
)
from tests.strategies import signature_of

# of flatbuffers, about how the published client calls it
pytestmark = pytest.mark.filterwarnings("ignore:numElems is deprecated:DeprecationWarning")


@pytest.mark.parametrize("datatype", TYPES, ids=str)
def test_flatc_reads_our_request(datatype: Datatype) -> None:
    tensor = example(datatype, "naïve")
    request = InferRequest(
        "m", (tensor, fp32("y")), (RequestedOutput("out"),), parameters={"config": '{"k": 1}'}
    )
    read = oracle.read_request(joined(request))
    assert read is not None
    assert read["config"] == b'{"k": 1}'
    assert read["input_names"] == ["naïve".encode(), b"y"]
    assert read["output_names"] == [b"out"]
    first, second = read["inputs"]
    assert (first.type, first.shape) == (TYPES[datatype], list(tensor.shape))
    if datatype is Datatype.BYTES:
        assert (first.data, first.strings) == (None, tensor.elements())
    else:
        assert (first.data, first.strings) == (bytes(tensor.view), [])
    assert (second.type, second.shape, second.data) == (10, [1], struct.pack("<f", 1))


@pytest.mark.parametrize("datatype", TYPES, ids=str)
def test_flatc_and_the_published_client_read_our_response(datatype: Datatype) -> None:
    tensor = example(datatype)
    body = b"".join(codec.encode_response(None, (fp32("y"), tensor)))
    (_, read), errors = oracle.read_response(body)
    assert errors == []
    assert (read.type, read.shape) == (TYPES[datatype], list(tensor.shape))
    (_, array), errors = convert.deserialize_infer_response(bytearray(body))
    assert errors == []
    if datatype is Datatype.BYTES:
        # its fixed-width array drops the NULs at the end
        assert array.ravel().tolist() == [element.rstrip(b"\0") for element in tensor.elements()]
    else:
        assert array.dtype == datatype.dtype
        np.testing.assert_array_equal(array, tensor.numpy())


@pytest.mark.parametrize("datatype", TYPES, ids=str)
def test_the_published_client_reads_our_request_and_we_read_its(datatype: Datatype) -> None:
    tensor = example(datatype)
    back = convert.deserialize_request(bytearray(joined(InferRequest("m", (tensor,)))))
    assert back.input_names == [b"x"]
    if datatype is not Datatype.BYTES:
        np.testing.assert_array_equal(back.input_tensors[0], tensor.numpy())
    theirs = published(["x"], [tensor.numpy()], ["o"], "hello")
    request, form = decoded(theirs, signature_of([tensor], [fp32("o")]))
    assert request.inputs == (tensor,)
    assert form == ("o",)
    assert request.outputs == (RequestedOutput("o"),)
    assert request.parameters == {"config": "hello"}


def test_a_config_that_is_no_text_is_bytes() -> None:
    body = published([], [ONES], config="xyz").replace(b"xyz", b"\xff\0\xfd")
    request, _ = decoded(body, AB)
    assert request.parameters == {"config": b"\xff\0\xfd"}
    sent = b"".join(map(bytes, codec.encode_request(request)))
    assert decoded(sent, AB)[0].parameters == request.parameters


@pytest.mark.parametrize("shape", [(), (0, 3), (0,), (1,), (2, 1, 3)])
def test_scalars_and_zero_dimensions(shape: tuple[int, ...]) -> None:
    tensor = Tensor.from_numpy("x", np.ones(shape, dtype=np.int64))
    body = b"".join(codec.encode_response(None, (tensor,)))
    (read,), _ = oracle.read_response(body)
    assert (read.shape, read.data) == (list(shape), bytes(tensor.view))
    assert codec.decode_response(body, ("x",), None) == (tensor,)
    if shape != ():
        (array,), _ = convert.deserialize_infer_response(bytearray(body))
        assert array.shape == shape


def test_tensor_data_is_a_view_and_is_never_copied() -> None:
    tensor = Tensor.from_numpy("x", np.arange(1000, dtype=np.float64))
    parts = codec.encode_response(None, (tensor,))
    assert parts[1] is tensor.data
    body = b"".join(parts)
    (back,) = codec.decode_response(body, ("x",), None)
    assert isinstance(back.data, memoryview)
    assert back.data.obj is body
    assert back.data.readonly


def test_a_kept_head_does_not_leak_into_another_message() -> None:
    for shape in ((2, 3), (3, 2), (6,), (2, 3)):
        for datatype in (Datatype.FP32, Datatype.INT32):
            tensor = Tensor.checked("x", datatype, shape, bytes(range(24)))
            request = InferRequest("m", (tensor,), parameters={"config": str(shape)})
            assert decoded(joined(request), signature_of([tensor]))[0] == replace_model(request)
            assert codec.decode_response(b"".join(codec.encode_response(None, (tensor,))), ("x",), None) == (
                tensor,
            )


def replace_model(request: InferRequest) -> InferRequest:
    """``request`` as it comes out of a message, which does not name the model."""
    return InferRequest("", request.inputs, request.outputs, parameters=request.parameters)


def test_the_vtable_of_an_older_writer_ends_early() -> None:
    answer = struct.pack("<I3H2xiI", 12, 6, 8, 4, 8, 4) + struct.pack("<II", 1, 12)
    tensor = struct.pack("<4HiIB3x", 8, 12, 8, 0, 8, 0, TYPES[Datatype.INT8])
    with pytest.raises(InferenceError, match=r"INT8 and shape \[\] needs 1 bytes, got 0"):
        codec.decode_response(answer + tensor, ("x",), None)


def test_the_vtable_of_a_newer_writer_has_fields_unknown_to_us() -> None:
    builder = flatbuffers.Builder()
    data = builder.CreateByteVector(b"\7")
    builder.StartObject(9)
    builder.PrependUint8Slot(0, TYPES[Datatype.INT8], 0)
    builder.PrependUOffsetTRelativeSlot(2, data, 0)
    builder.PrependInt64Slot(8, 12345, 0)
    tensor = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(tensor)
    tensors = builder.EndVector()
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(0, tensors, 0)
    builder.PrependInt64Slot(4, 12345, 0)
    builder.Finish(builder.EndObject())
    expected = Tensor.checked("x", Datatype.INT8, (), b"\7")
    assert codec.decode_response(builder.Output() + b"trailing bytes", ("x",), None) == (expected,)


def test_absent_fields_are_empty() -> None:
    request = struct.pack("<I4HiIB3x", 12, 8, 12, 8, 4, 8, 12, 1) + struct.pack("<2Hi", 4, 4, 4)
    assert oracle.read_request(request, strict=False) == {
        "config": b"",
        "input_names": [],
        "output_names": [],
        "inputs": [],
    }
    assert decoded(request, AB) == (InferRequest("", ()), None)
    response = struct.pack("<I2Hi", 8, 4, 4, 4)
    assert codec.decode_response(response, (), None) == ()
    assert codec.decode_response(response, None, None) == ()


class TestNames:
    """Which tensor is which."""

    def test_tensors_without_names_are_the_inputs_in_order(self) -> None:
        request, form = decoded(published([], [ONES, TWOS]), AB)
        assert [tensor.name for tensor in request.inputs] == ["a", "b"]
        assert (request.outputs, form) == (None, None)

    def test_an_empty_or_missing_name_is_the_input_at_that_index(self) -> None:
        request, _ = decoded(published([""], [ONES, TWOS]), AB)
        assert request.inputs == (fp32("a"), fp32("b", 2))

    def test_names_bind_whatever_the_order(self) -> None:
        request, _ = decoded(published(["b", "a"], [ONES, TWOS]), AB)
        assert {tensor.name: tensor.numpy()[0] for tensor in request.inputs} == {"a": 2, "b": 1}

    def test_surplus_names_are_ignored(self) -> None:
        request, _ = decoded(published(["b", "a", "b", "nobody"], [ONES, TWOS]), AB)
        assert [tensor.name for tensor in request.inputs] == ["b", "a"]

    def test_of_a_repeated_name_the_last_counts(self) -> None:
        request, _ = decoded(published(["a", "a"], [ONES, TWOS]), AB)
        assert request.inputs == (fp32("a", 2),)

    def test_an_unknown_input(self) -> None:
        with pytest.raises(InferenceError, match="^Could not find input 'c'$") as caught:
            decoded(published(["c"], [ONES]), AB)
        assert caught.value.code is ErrorCode.INVALID_TENSOR

    def test_more_tensors_than_inputs(self) -> None:
        with pytest.raises(
            InferenceError, match="input tensor 2 has no name and the model has only 2 inputs"
        ):
            decoded(published([], [ONES, ONES, ONES]), AB)

    def test_outputs_may_repeat_and_come_in_any_order(self) -> None:
        request, form = decoded(published([], [ONES], ["diff", "sum", "diff"]), AB)
        assert form == ("diff", "sum", "diff")
        assert request.outputs == (RequestedOutput("diff"), RequestedOutput("sum"))
        tensors, _ = oracle.read_response(
            b"".join(codec.encode_response(form, (fp32("sum", 1), fp32("diff", 2))))
        )
        assert [struct.unpack("<f", tensor.data or b"")[0] for tensor in tensors] == [2, 1, 2]

    def test_an_unknown_output(self) -> None:
        with pytest.raises(InferenceError, match="^Could not find output 'quotient'$"):
            decoded(published([], [ONES], ["sum", "quotient"]), AB)

    def test_an_empty_output_name(self) -> None:
        with pytest.raises(InferenceError, match="^Could not init output names$"):
            decoded(published([], [ONES], [""]), AB)

    def test_a_model_that_omits_a_requested_output(self) -> None:
        with pytest.raises(InferenceError, match="without output 'sum'") as caught:
            codec.encode_response(("sum",), (fp32("diff"),))
        assert caught.value.code is ErrorCode.MODEL_FAILED

    def test_a_name_that_is_not_utf8(self) -> None:
        body = published(["abc"], [ONES]).replace(b"abc", b"\xff\xfe\xfd")
        with pytest.raises(InferenceError, match="the name of input tensor 0 is not UTF-8") as caught:
            decoded(body, AB)
        assert caught.value.code is ErrorCode.MALFORMED


class TestAnswersOfAnUpstream:
    """Answers carry no names."""

    body = b"".join(codec.encode_response(None, (fp32("-", 1), fp32("-", 2))))

    def test_requested_names_come_first(self) -> None:
        assert codec.decode_response(self.body, ("diff", "sum"), AB) == (fp32("diff", 1), fp32("sum", 2))

    def test_then_the_signature(self) -> None:
        assert codec.decode_response(self.body, None, AB) == (fp32("sum", 1), fp32("diff", 2))

    @pytest.mark.parametrize("signature", [None, Signature((), ())])
    def test_then_numbers(self, signature: Signature | None) -> None:
        expected = (fp32("output0", 1), fp32("output1", 2))
        assert codec.decode_response(self.body, None, signature) == expected

    def test_no_requested_output_returns_none(self) -> None:
        assert codec.decode_response(self.body, (), AB) == ()

    @pytest.mark.parametrize("asked", [("sum",), ("a", "b", "c")])
    def test_a_wrong_number_is_not_guessed_at(self, asked: tuple[str, ...]) -> None:
        with pytest.raises(InferenceError, match="has 2 tensors") as caught:
            codec.decode_response(self.body, asked, AB)
        assert caught.value.code is ErrorCode.BAD_UPSTREAM

    @pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
    def test_an_error_in_band(self, code: ErrorCode) -> None:
        body = codec.encode_error(InferenceError(code, "boom é"))
        assert oracle.read_response(body) == ([], [(code.value, "boom é".encode())])
        tensors, (error,) = convert.deserialize_infer_response(bytearray(body))
        assert (tensors, error) == ([], {"code": code.value, "message": "boom é".encode()})
        with pytest.raises(InferenceError, match="^boom é$") as caught:
            codec.decode_response(body, None, None)
        assert caught.value.code is code


class TestDatatypes:
    """What is widened and what is refused."""

    truth = Tensor.from_numpy("x", np.array([True, False, True]))

    def test_bool_travels_as_uint8_and_comes_back(self) -> None:
        assert OVER_HTTP.widened == {Datatype.BOOL: Datatype.UINT8}
        body = joined(InferRequest("m", (self.truth,)))
        read = oracle.read_request(body)
        assert read is not None
        assert (read["inputs"][0].type, read["inputs"][0].data) == (1, b"\1\0\1")
        assert decoded(body, signature_of([self.truth]))[0].inputs == (self.truth,)
        answer = b"".join(codec.encode_response(None, (self.truth,)))
        assert codec.decode_response(answer, None, signature_of([], [self.truth])) == (self.truth,)
        (wide,) = codec.decode_response(answer, None, None)
        assert wide.datatype is Datatype.UINT8

    def test_a_byte_that_is_no_bool(self) -> None:
        bytes_ = Tensor.from_numpy("x", np.array([0, 1, 2], dtype=np.uint8))
        with pytest.raises(InferenceError, match="tensor 'x' of datatype BOOL holds bytes other") as caught:
            decoded(joined(InferRequest("m", (bytes_,))), signature_of([self.truth]))
        assert caught.value.code is ErrorCode.INVALID_TENSOR

    @pytest.mark.parametrize("datatype", set(Datatype) - set(TYPES) - {Datatype.BOOL}, ids=str)
    def test_the_others_are_refused_by_name(self, datatype: Datatype) -> None:
        tensor = example(datatype, "logits")
        for write in (
            lambda: codec.encode_request(InferRequest("m", (tensor,))),
            lambda: codec.encode_response(None, (tensor,)),
        ):
            with pytest.raises(InferenceError, match=f"'logits'.*GraphPipe.*{datatype.value}") as caught:
                write()
            assert caught.value.code is ErrorCode.UNREPRESENTABLE

    @pytest.mark.parametrize(("code", "said"), [(0, "the type Null"), (13, "unknown type 13")])
    def test_null_and_unknown_types_are_refused_by_name(self, code: int, said: str) -> None:
        forms = ((code, (1,), 4, 4),)
        body = b"".join(writer.infer_request(b"", (b"a",), (), forms, [bytes(4)]))
        with pytest.raises(InferenceError, match=f"tensor 'a' has .*{said}") as caught:
            decoded(body, AB)
        assert caught.value.code is ErrorCode.INVALID_TENSOR


def test_the_metadata_request() -> None:
    body = writer.metadata_request()
    assert oracle.read_request(body) is None
    message = codec.open_request(body)
    assert message.table is None
    with pytest.raises(InferenceError, match="no tensors"):
        codec.decode_request(message, AB)


@pytest.mark.parametrize(("tensors", "rank"), [(1, 10_000), (10_000, 0)])
def test_many_dimensions_or_tensors_are_not_cached(tensors: int, rank: int) -> None:
    many = (Tensor("", Datatype.UINT8, (1,) * rank, memoryview(b"1")),) * tensors
    before = writer.request_leads.cache_info().currsize, writer._response_leads.cache_info().currsize
    codec.encode_request(InferRequest("m", many))
    codec.encode_response(None, many)
    assert before == (
        writer.request_leads.cache_info().currsize,
        writer._response_leads.cache_info().currsize,
    )
