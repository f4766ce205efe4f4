"""What GraphPipe's codec refuses: bytes that are no message, messages that contradict themselves,
requests that the dialect has no form for."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from interlingua.protocols.graphpipe import codec, reader, writer
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.protocols.graphpipe.messages import AB, ONES, STRINGS, decoded, fp32, joined, published
from tests.strategies import signature_of

# of flatbuffers, about how the published client calls it
pytestmark = pytest.mark.filterwarnings("ignore:numElems is deprecated:DeprecationWarning")


class TestContradictions:
    """Messages that are well-formed and wrong."""

    @staticmethod
    def message(code: int, shape: tuple[int, ...], data: bytes, length: int | None = None) -> bytes:
        form = (code, shape, len(data) if length is None else length, len(data))
        return b"".join(writer.infer_request(b"", (), (), (form,), [data]))

    @pytest.mark.parametrize(
        ("code", "shape", "data", "said"),
        [
            (10, (2, 3), bytes(20), r"tensor 'a' of datatype FP32 and shape \[2, 3\] needs 24 bytes, got 20"),
            (10, (), b"", "needs 4 bytes, got 0"),
            (10, (-1,), bytes(4), "tensor 'a' has a negative dimension"),
            (1, (2**62, 2**62, 2**62), b"", "more elements than 64 bits"),
            (1, (2**63 - 1,), b"", "needs 9223372036854775807 bytes"),
            (10, (0, 2**62, 2**62), b"", "more elements than 64 bits"),
            (12, (2,), b"", r"type String and shape \[2\] needs 2 strings, got 0"),
            (12, (2**62,), b"", "needs 4611686018427387904 strings, got 0"),
            (1, (1,) * 65, b"\0", "claims 65 dimensions; 64 is the most"),
        ],
    )
    def test_shapes_and_sizes(self, code: int, shape: tuple[int, ...], data: bytes, said: str) -> None:
        with pytest.raises(InferenceError, match=said) as caught:
            decoded(self.message(code, shape, data), AB)
        assert caught.value.code is ErrorCode.INVALID_TENSOR

    def test_a_vector_longer_than_the_message(self) -> None:
        with pytest.raises(InferenceError, match="outside of its") as caught:
            decoded(self.message(1, (4,), bytes(4), length=2**32 - 1), AB)
        assert caught.value.code is ErrorCode.MALFORMED

    def test_numbers_and_strings_in_one_tensor(self) -> None:
        # the vtable of either form of tensor, made to carry both fields
        body = bytearray(self.message(10, (1,), struct.pack("<f", 1)))
        numbers = body.index(struct.pack("<5H", 10, 16, 12, 4, 8))
        body[numbers : numbers + 12] = struct.pack("<6H", 12, 16, 12, 4, 8, 8)
        with pytest.raises(InferenceError, match="'a' of datatype FP32 carries strings"):
            decoded(bytes(body), AB)
        body = bytearray(joined(InferRequest("m", (STRINGS,))))
        strings = body.rindex(struct.pack("<6H", 12, 16, 12, 4, 0, 8))
        body[strings : strings + 12] = struct.pack("<6H", 12, 16, 12, 4, 8, 8)
        with pytest.raises(InferenceError, match="'words' of type String carries bytes"):
            decoded(bytes(body), signature_of([STRINGS]))

    @pytest.mark.parametrize("tag", [0, 3, 255])
    def test_an_unknown_union_tag(self, tag: int) -> None:
        body = bytearray(published([], [ONES]))
        message = codec.open_request(bytes(body))
        assert message.table is not None
        root = reader.root(message.view)
        body[root + reader.slots(message.view, root, 2)[0]] = tag
        with pytest.raises(InferenceError, match=f"union tag {tag} ") as caught:
            codec.open_request(bytes(body))
        assert caught.value.code is ErrorCode.MALFORMED

    @pytest.mark.parametrize("body", [b"", b"\0", b"\xff" * 64, bytes(64), b"GET / HTTP/1.1\r\n\r\n"])
    def test_bytes_that_are_no_message(self, body: bytes) -> None:
        for read in (codec.open_request, lambda body: codec.decode_response(body, ("x",), None)):
            with pytest.raises(InferenceError) as caught:
                read(body)
            assert caught.value.code in (ErrorCode.MALFORMED, ErrorCode.BAD_UPSTREAM)

    def test_strings_that_share_their_bytes_are_bounded(self) -> None:
        count = 20_000
        word = bytes(1000)
        block = bytearray()
        for index in range(count):
            block += struct.pack("<I", 4 * (count - index))
        block += struct.pack("<I", len(word)) + word + bytes(4)
        form = (12, (count,), count, len(block))
        body = b"".join(writer.infer_response((form,), [block]))
        with pytest.raises(InferenceError, match="unfolds to more than 16 times"):
            codec.decode_response(body, ("x",), None)

    def test_of_a_repeated_name_only_the_last_tensor_is_read(self) -> None:
        """So the work is bounded by the model's inputs, whatever a message repeats."""
        forms = ((0, (), 0, 0), (10, (1,), 4, 4))
        body = b"".join(writer.infer_request(b"", (b"a", b"a"), (), forms, [b"", bytes(4)]))
        assert decoded(body, AB)[0].inputs == (fp32("a", 0),)

    def test_an_output_repeated_beyond_reason(self) -> None:
        form = decoded(published([], [ONES], ["sum"] * 32), AB)[1]
        assert form == ("sum",) * 32
        with pytest.raises(InferenceError, match="1000 outputs are requested of a model that has 2"):
            decoded(published([], [ONES], ["sum"] * 1000), AB)


INT64 = Tensor.from_numpy("i", np.arange(3))
MATRIX = Tensor.from_numpy("m", np.zeros((2, 4), np.float32))


def places(*shapes: tuple[Datatype, tuple[int, ...]]) -> Signature:
    """Outputs `a`, `b` and so on."""
    specs = (TensorSpec(name, *shape) for name, shape in zip("abc", shapes, strict=False))
    return Signature((TensorSpec("x", Datatype.FP32, (-1,)),), tuple(specs))


class TestWhichOutputIsWhich:
    """Answers have no names, so one that contradicts the signature tells nothing."""

    @pytest.mark.parametrize(
        ("declared", "answered"),
        [
            (places((Datatype.FP32, (-1, 4)), (Datatype.INT64, (3,))), [MATRIX, INT64]),
            (places((Datatype.FP32, (1, 4)), (Datatype.INT64, (1,))), [MATRIX, INT64]),  # batch declared as 1
            (places((Datatype.FP32, ()), (Datatype.INT64, ())), [MATRIX, INT64]),  # unknown
            (places((Datatype.FP32, (-1, 8, 8))), [MATRIX]),  # there is but one
            (places((Datatype.BOOL, (3,))), [Tensor.from_numpy("t", np.array([1, 0, 1], np.uint8))]),
        ],
    )
    def test_what_fits(self, declared: Signature, answered: list[Tensor]) -> None:
        body = b"".join(codec.encode_response(None, answered))
        outputs = codec.decode_response(body, tuple(declared.output_names), declared)
        assert [bytes(tensor.view) for tensor in outputs] == [bytes(tensor.view) for tensor in answered]

    @pytest.mark.parametrize(
        ("declared", "answered", "said"),
        [
            (
                places((Datatype.FP32, (-1, 4)), (Datatype.INT64, (-1,))),
                [INT64, MATRIX],
                "tensor 0 .* 'a' is FP32",
            ),
            (
                places((Datatype.FP32, (-1, 4)), (Datatype.FP32, (-1, 2))),
                [MATRIX, MATRIX],
                "tensor 1 .* 'b' is FP32",
            ),
            (
                places((Datatype.FP32, (-1, 4)), (Datatype.FP32, (-1,))),
                [MATRIX, MATRIX],
                r"tensor 1 .*\[-1\]",
            ),
            (places((Datatype.FP64, (-1, 4))), [MATRIX], "FP32 .* FP64"),
        ],
    )
    def test_what_contradicts(self, declared: Signature, answered: list[Tensor], said: str) -> None:
        body = b"".join(codec.encode_response(None, answered))
        with pytest.raises(InferenceError, match=said) as caught:
            codec.decode_response(body, tuple(declared.output_names), declared)
        assert caught.value.code is ErrorCode.BAD_UPSTREAM

    def test_what_the_simple_api_reports_tells_nothing(self) -> None:
        """graphpipe-go's ``Serve`` says Int64 and the rank of any function."""
        told = Signature(
            (TensorSpec("input0", Datatype.INT64, (2,)),),
            tuple(TensorSpec(f"output{place}", Datatype.INT64, (2,)) for place in range(2)),
        )
        body = b"".join(codec.encode_response(None, [MATRIX, INT64]))
        outputs = codec.decode_response(body, tuple(told.output_names), told)
        assert outputs == (MATRIX.renamed("output0"), INT64.renamed("output1"))


class TestWhatARequestCannotSay:
    """Requests that an upstream of this dialect would misunderstand."""

    @pytest.mark.parametrize(
        ("request_", "said"),
        [
            (InferRequest("m", (), (RequestedOutput("o", classification=3),)), "output 'o'.*classification"),
            (InferRequest("m", (), parameters={"config": 3}), "parameter 'config' must be text or bytes"),
            (InferRequest("m", (fp32("\ud800"),)), "the name of an input is not UTF-8"),
        ],
    )
    def test_it_is_refused(self, request_: InferRequest, said: str) -> None:
        with pytest.raises(InferenceError, match=said) as caught:
            codec.encode_request(request_)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE

    def test_more_than_32_bit_offsets_span(self) -> None:
        forms = ((1, (2**31,), 2**31, 2**31),)
        with pytest.raises(InferenceError, match="more than 2147483647 bytes") as caught:
            writer.infer_response(forms, [b""])
        assert caught.value.code is ErrorCode.TOO_LARGE
