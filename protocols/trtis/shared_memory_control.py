"""SharedMemoryControl requests, in the shapes of every release.

Releases 1.5 to 1.8 each changed the message and reused field numbers, so one contract cannot read them all.
The fields distinguish them:

==================  =====================================  ==============================
release             register                               unregister
==================  =====================================  ==============================
1.5                 type (1) is 1, region (2)              region (2) with a name alone
1.6                 region (2) with more than a name       type (1) is 1, region (2)
1.7                 (1), the key as field 2 of system (2)  (2)
1.8 and later       (1), the key as field 1 of system (2)  (2)
==================  =====================================  ==============================

To unregister all is type 2 in 1.6, field 3 from 1.7 on; the status of all regions is field 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from interlingua.protocols.protobuf_wire import read_fields
from interlingua.protocols.wire import Buffer
from interlingua.schemas import Operation, SharedMemoryRegion, invalid_tensor, malformed

Fields = Mapping[int, int | memoryview]
Control = tuple[Operation, SharedMemoryRegion | str | None]

_UNREGISTER_ALL_OF_1_6 = 2
_NOTHING = memoryview(b"")
_MAX_UINT64 = 2**64 - 1


def read_control(message: Buffer) -> Control | None:
    """The operation and its argument; None if the message has none. Raises MALFORMED, INVALID_TENSOR for
    memory of a GPU."""
    try:
        return _read(read_fields(message))
    except (DecodeError, UnicodeDecodeError) as error:
        raise malformed(f"unable to parse SharedMemoryControlRequest: {error}") from error


def _read(request: Fields) -> Control | None:
    control = request.get(1)
    if isinstance(control, memoryview):
        return Operation.SHARED_MEMORY_REGISTER, _registered(read_fields(control))
    if control == _UNREGISTER_ALL_OF_1_6 or 3 in request:
        return Operation.SHARED_MEMORY_UNREGISTER, None
    if 2 in request:
        region = _message(request, 2)
        name = _text(region, 1)
        if region.keys() <= {1}:
            return Operation.SHARED_MEMORY_UNREGISTER, name
        return Operation.SHARED_MEMORY_REGISTER, SharedMemoryRegion(
            name, key=_text(region, 2), offset=_number(region, 3), byte_size=_number(region, 4)
        )
    if 4 in request:
        return Operation.SHARED_MEMORY_STATUS, None
    return None


def _registered(region: Fields) -> SharedMemoryRegion:
    name = _text(region, 1)
    if 3 in region:
        raise invalid_tensor(f"failed to register CUDA shared memory region: '{name}', GPUs not supported")
    system = _message(region, 2)
    if isinstance(system.get(2), memoryview):  # 1.7 has the offset outside of the key's message
        return SharedMemoryRegion(
            name, key=_text(system, 2), offset=_number(region, 4), byte_size=_number(region, 5)
        )
    return SharedMemoryRegion(
        name, key=_text(system, 1), offset=_number(system, 2), byte_size=_number(region, 4)
    )


def _message(fields: Fields, number: int) -> Fields:
    return read_fields(_bytes(fields, number))


def _text(fields: Fields, number: int) -> str:
    return str(_bytes(fields, number), "utf-8")


def _bytes(fields: Fields, number: int) -> memoryview:
    value = fields.get(number, _NOTHING)
    if isinstance(value, int):
        raise DecodeError(f"field {number} is a number")
    return value


def _number(fields: Fields, number: int) -> int:
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise DecodeError(f"field {number} is no number")
    return value & _MAX_UINT64
