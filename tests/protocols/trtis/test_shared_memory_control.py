"""SharedMemoryControl as each release wrote it. Two of the forms need other numbers than the contract's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.trtis.shared_memory_control import read_control
from interlingua.schemas import ErrorCode, InferenceError, Operation, SharedMemoryRegion
from tests.standins.trtis_contract import message

REGISTER = Operation.SHARED_MEMORY_REGISTER
UNREGISTER = Operation.SHARED_MEMORY_UNREGISTER
REGION = SharedMemoryRegion("r", "/key", 8, 300)


def number(field: int, value: int) -> bytes:
    octets = bytearray([field << 3])
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])


def part(field: int, contents: bytes | str) -> bytes:
    contents = contents.encode() if isinstance(contents, str) else contents
    assert len(contents) < 0x80
    return bytes([field << 3 | 2, len(contents)]) + contents


def control(**fields: object) -> bytes:
    """A request of 1.8 and later."""
    return message("SharedMemoryControlRequest", **fields).SerializeToString()  # type: ignore[no-any-return]


FLAT = part(1, "r") + part(2, "/key") + number(3, 8) + number(4, 300)
"""A region of 1.5 and 1.6."""

CASES = {
    "1.5 register": (number(1, 1) + part(2, FLAT), (REGISTER, REGION)),
    "1.5 unregister": (part(2, part(1, "r")), (UNREGISTER, "r")),
    "1.6 register": (part(2, FLAT), (REGISTER, REGION)),
    "1.6 unregister": (number(1, 1) + part(2, part(1, "r")), (UNREGISTER, "r")),
    "1.6 unregister all": (number(1, 2), (UNREGISTER, None)),
    "1.7 register": (
        part(1, part(1, "r") + part(2, part(2, "/key")) + number(4, 8) + number(5, 300)),
        (REGISTER, REGION),
    ),
    "1.7 register without an offset": (
        part(1, part(1, "r") + part(2, part(2, "/key")) + number(5, 300)),
        (REGISTER, SharedMemoryRegion("r", "/key", 0, 300)),
    ),
    "register": (
        control(
            register={
                "name": "r",
                "system_shared_memory": {"shared_memory_key": "/key", "offset": 8},
                "byte_size": 300,
            }
        ),
        (REGISTER, REGION),
    ),
    "register a nameless nothing": (control(register={}), (REGISTER, SharedMemoryRegion("", "", 0, 0))),
    "register without an offset": (
        control(
            register={"name": "r", "system_shared_memory": {"shared_memory_key": "/key"}, "byte_size": 300}
        ),
        (REGISTER, SharedMemoryRegion("r", "/key", 0, 300)),
    ),
    "unregister": (control(unregister={"name": "r"}), (UNREGISTER, "r")),
    "unregister the nameless": (control(unregister={}), (UNREGISTER, "")),
    "unregister all": (control(unregister_all={}), (UNREGISTER, None)),
    "status": (control(status={}), (Operation.SHARED_MEMORY_STATUS, None)),
    "nothing": (b"", None),
    "something newer": (part(9, "x"), None),
}


@pytest.mark.parametrize("case", CASES)
def test_every_release(case: str) -> None:
    wire, expected = CASES[case]
    assert read_control(wire) == expected


def test_memory_of_a_gpu() -> None:
    wire = control(
        register={
            "name": "r",
            "cuda_shared_memory": {"raw_handle": bytes(64), "device_id": 0},
            "byte_size": 4,
        }
    )
    with pytest.raises(InferenceError) as caught:
        read_control(wire)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert caught.value.message == "failed to register CUDA shared memory region: 'r', GPUs not supported"


@pytest.mark.parametrize(
    "wire",
    [
        b"\x08",
        part(1, b"")[:1],
        part(2, part(1, "r"))[:-1],
        part(1, number(1, 5)),
        part(2, part(1, b"\xff")),
        part(2, part(1, "r") + part(2, "/k") + part(3, "x")),
        part(1, part(1, "r") + part(2, part(1, b"\xc3"))),
        number(2, 5),
        b"\x0c",
    ],
    ids=repr,
)
def test_what_is_no_request(wire: bytes) -> None:
    with pytest.raises(InferenceError) as caught:
        read_control(wire)
    assert caught.value.code is ErrorCode.MALFORMED


@given(
    st.binary(max_size=40)
    | st.sampled_from([wire for wire, _ in CASES.values()]).flatmap(
        lambda wire: st.integers(0, len(wire)).map(lambda end: wire[:end])
    )
)
def test_any_bytes(wire: bytes) -> None:
    try:
        read_control(wire)
    except InferenceError as error:
        assert error.code in (ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR)  # noqa: PT017
