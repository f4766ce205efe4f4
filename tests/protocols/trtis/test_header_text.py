"""Messages in headers, held against protobuf's own text format."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.trtis import header_text
from interlingua.protocols.trtis.codec import REQUEST_HEADER, RESPONSE_HEADER
from interlingua.protocols.trtis.header_text import (
    read,
    write_request_header,
    write_response_header,
    write_status,
)
from interlingua.protocols.trtis.status import REQUEST_STATUS
from interlingua.schemas import ErrorCode, InferenceError
from tests.protocols.trtis.http_exchange import text

REAL = (
    'batch_size: 1 input { name: "INPUT0" dims: 16 } input { name: "INPUT1" dims: 16 } '
    'output { name: "OUTPUT1" } output { name: "OUTPUT0" }'
)

words = st.text(max_size=9)
uint32, uint64, int64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
dims = st.lists(st.integers(0, 20) | int64, max_size=4)
places = st.none() | st.fixed_dictionaries({"name": words, "offset": uint64, "byte_size": uint64})


def known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


inputs = st.fixed_dictionaries(
    {"name": words, "dims": dims, "batch_byte_size": uint64, "shared_memory": places}
).map(known)
outputs = st.fixed_dictionaries(
    {"name": words, "cls": st.none() | st.fixed_dictionaries({"count": uint32}), "shared_memory": places}
).map(known)
request_headers = st.builds(
    REQUEST_HEADER,
    batch_size=uint32,
    input=st.lists(inputs, max_size=3),
    output=st.lists(outputs, max_size=3),
    correlation_id=uint64,
    id=uint64,
    flags=uint32,
    priority=uint32,
    timeout_microseconds=uint64,
)
classes = st.fixed_dictionaries(
    {"idx": st.integers(0, 2**31 - 1), "value": st.floats(width=32), "label": words}
)
raws = st.fixed_dictionaries({"dims": dims, "batch_byte_size": uint64})
answered = st.fixed_dictionaries(
    {
        "name": words,
        "raw": st.none() | raws,
        "batch_classes": st.lists(st.fixed_dictionaries({"cls": st.lists(classes, max_size=2)}), max_size=2),
    }
).map(known)
response_headers = st.builds(
    RESPONSE_HEADER,
    model_name=words,
    model_version=int64,
    batch_size=uint32,
    output=st.lists(answered, max_size=3),
    id=uint64,
)
statuses = st.builds(REQUEST_STATUS, code=st.integers(0, 8), msg=words, server_id=words, request_id=uint64)
messages = st.one_of(request_headers, response_headers, statuses)


@given(message=messages)
def test_what_protobuf_writes_is_read(message: Any) -> None:
    assert text(read(type(message), text(message))) == text(message)


@given(header=request_headers)
def test_request_headers_are_written(header: Any) -> None:
    for output in header.output:
        output.ClearField("cls")  # which is never asked of an upstream
    # a batch of 0 and places of 0 are written out, which is the same to a reader
    assert text_format.Parse(write_request_header(header), REQUEST_HEADER()) == header


@given(header=response_headers)
def test_response_headers_are_written_without_classes(header: Any) -> None:
    written = write_response_header(header)
    for output in header.output:
        del output.batch_classes[:]
    assert text_format.Parse(written, RESPONSE_HEADER()) == header
    if all(output.name for output in header.output):
        assert written == text(header)
    assert written.isascii() and written.isprintable()


@given(status=statuses)
def test_statuses_are_written(status: Any) -> None:
    assert write_status(status) == text(status)


def test_escapes_are_those_of_c() -> None:
    status = REQUEST_STATUS(code=1, msg="a'b\"c\\d\n\t\ré\x00\x7f?")
    assert write_status(status) == 'code: SUCCESS msg: "' + r"a\'b\"c\\d\n\t\r\303\251\000\177?" + '"'
    assert write_status(status) == text(status)


def test_an_empty_message_is_an_empty_value() -> None:
    assert write_response_header(RESPONSE_HEADER()) == write_status(REQUEST_STATUS()) == ""
    assert read(REQUEST_HEADER, "") == REQUEST_HEADER()


def test_the_form_of_real_clients_is_read_without_protobufs_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = text_format.Parse(REAL, REQUEST_HEADER())
    monkeypatch.delattr(header_text.text_format, "Parse")
    assert read(REQUEST_HEADER, REAL) == expected
    placed = (
        'output { name: "A" shared_memory { name: "r" byte_size: 4 } } correlation_id: 18446744073709551615'
    )
    assert read(REQUEST_HEADER, placed).correlation_id == 2**64 - 1
    assert read(REQUEST_STATUS, 'code: SUCCESS server_id: "inference:0" request_id: 2').code == 1


@pytest.mark.parametrize(
    "written",
    [
        "batch_size:1,input<name:'A';dims:[1,3]>",
        'batch_size: 0x1  input: { name: "A" dims: [1] dims: 3 } # and a comment',
        'batch_size: 1\tinput { name: "\\101" dims: 01 dims: 3 }',
        'input { name: "" "A" dims: 1 dims: 3 } batch_size: 1',
    ],
)
def test_every_form_of_text_is_read(written: str) -> None:
    expected = REQUEST_HEADER(batch_size=1, input=[{"name": "A", "dims": [1, 3]}])
    assert read(REQUEST_HEADER, written) == expected


@pytest.mark.parametrize("number", ["9" * 30, "-" + "9" * 30])
def test_a_number_out_of_the_range_of_an_enumeration(number: str) -> None:
    with pytest.raises(InferenceError, match="out of range") as caught:
        read(REQUEST_STATUS, f"code: {number}")
    assert caught.value.code is ErrorCode.MALFORMED


PIECES = st.sampled_from(
    [*REAL.split(" "), "{", "}", ":", "-1", "00", "9" * 19, "9" * 20, "1.5", '"', "'", "#", "id:", "flags:", "dims: 1",
     "cls { count: 3 }", "shared_memory {", "name: 1", "batch_size: x", 'id: "1"', "no_such: 1", "input: 1", "[a.b/c]: 1",
     "batch_size: -0", "\\", "é", "\udc80", "nan", "true", "\x00", "  "]
)  # fmt: skip


@given(
    st.one_of(
        st.lists(PIECES, max_size=12).map(" ".join),
        st.text(max_size=40),
        st.binary(max_size=40).map(lambda given: given.decode("utf-8", "surrogateescape")),
    )
)
def test_read_as_protobuf_reads_it(written: str) -> None:
    try:
        expected = text_format.Parse(written, REQUEST_HEADER())
    except (text_format.ParseError, UnicodeError):
        with pytest.raises(InferenceError) as caught:
            read(REQUEST_HEADER, written)
        assert caught.value.code is ErrorCode.MALFORMED
    else:
        assert read(REQUEST_HEADER, written) == expected
