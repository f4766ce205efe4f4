"""Inference as a client, for both transports: a request of the IR into its header, the header of an answer
into the IR. ``client_http`` and ``client_grpc`` place headers and contents in a call."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interlingua.protocols.trtis.codec import (
    DIALECT_NAME,
    REQUEST_HEADER,
    SEQUENCE_END,
    SEQUENCE_START,
    check_carried,
    fold,
    unfold,
    version_number,
)
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
    element_count,
    invalid_tensor,
    not_carried,
)

LATEST = -1
"""The version of a model that leaves the choice to its policy."""

_MAX_UINT64 = 2**64 - 1

Take = Callable[[str, Datatype, int], memoryview]
"""``take(name, datatype, count)``: the contents of the next output, exactly ``count`` elements. Raises if
there are fewer."""

_UNKNOWN = Signature((), ())
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class PendingCall:
    """What the answer to an inference is read with."""

    version: str
    batch_size: int
    placements: dict[str, SharedMemoryRef]
    signature: Signature


def encode_request(
    request: InferRequest, signature: Signature | None
) -> tuple[Any, list[Buffer], PendingCall]:
    """An ``InferRequestHeader``, the contents of the inputs that are not in shared memory, and what to read
    the answer with.

    The dialect has no form for "all outputs", so the header names them. Classes are never requested: they are
    ranked here. An id that is not a number and the parameters are dropped. Raises UNREPRESENTABLE for a
    datatype, a batch or a sequence id without a form, INVALID_TENSOR for another datatype than the model's.
    """
    signature = signature or _UNKNOWN
    batch_size = _batch_size(request.inputs, signature)
    contents: list[Buffer] = []
    placements: dict[str, SharedMemoryRef] = {}
    try:
        header = REQUEST_HEADER(
            batch_size=batch_size,
            id=_number_of_id(request.id),
            priority=request.priority,
            timeout_microseconds=request.timeout_us,
        )
        for tensor in request.inputs:
            check_carried("input", tensor.name, tensor.datatype)
            _check_datatype(tensor, signature)
            entry = header.input.add(name=tensor.name, dims=fold(tensor.shape, signature))
            if tensor.datatype is Datatype.BYTES:
                entry.batch_byte_size = tensor.nbytes
            if isinstance(tensor.data, SharedMemoryRef):
                _write_place(entry.shared_memory, tensor.data)
            else:
                contents.append(tensor.data)
        for output in _outputs(request, signature):
            entry = header.output.add(name=output.name)
            if output.placement is not None:
                _write_place(entry.shared_memory, output.placement)
                placements[output.name] = output.placement
        if request.sequence is not None:
            _write_sequence(header, request.sequence)
    except ValueError as error:
        raise not_carried(DIALECT_NAME, f"this request: {error}") from error
    return header, contents, PendingCall(request.version, batch_size, placements, signature)


def decode_response(pending: PendingCall, header: Any, take: Take) -> InferResponse:
    """The answer with ``header``, an ``InferResponseHeader``. ``take`` is called for every output that is not
    in shared memory, in order. Raises INVALID_TENSOR naming the output."""
    outputs: list[Tensor] = []
    names: set[str] = set()
    if header.batch_size not in (0, pending.batch_size):
        raise invalid_tensor(f"a batch of {header.batch_size} was answered to one of {pending.batch_size}")
    for entry in header.output:
        name = entry.name
        spec = pending.signature.output_names.get(name)
        if spec is None:
            raise invalid_tensor(f"output '{name}' is none of the model's outputs")
        if name in names:
            raise invalid_tensor(f"output '{name}' is in the answer twice")
        names.add(name)
        if not entry.HasField("raw"):
            raise invalid_tensor(f"output '{name}' is classes, which were not requested")
        outputs.append(_output(pending, spec, entry.raw, take))
    # protobuf omits 0, as a server without versions omits the field
    version = str(header.model_version) if header.model_version else pending.version
    return InferResponse(header.model_name, tuple(outputs), version, str(header.id or ""))


def size_of(name: str, datatype: Datatype, count: int, contents: memoryview) -> int:
    """The size in bytes of the first ``count`` elements of ``contents``. Raises INVALID_TENSOR if there are
    fewer."""
    if datatype is not Datatype.BYTES:
        size = count * datatype.itemsize
    else:
        size, end = 0, len(contents)
        # every string has at least four bytes, so a false claim fails before the walk
        if count * _LENGTH.size > end:
            raise invalid_tensor(f"output '{name}' has {end} bytes, too few for {count} strings")
        for _ in range(count):
            if size + _LENGTH.size > end:
                raise invalid_tensor(f"the {count} strings of output '{name}' end beyond its {end} bytes")
            size += _LENGTH.size + _LENGTH.unpack_from(contents, size)[0]
    if size > len(contents):
        raise invalid_tensor(
            f"output '{name}' needs {size} bytes for {count} elements, it has {len(contents)}"
        )
    return size


def version_of(version: str, model: str) -> int:
    """``version`` as a number. Raises UNREPRESENTABLE for other text."""
    if not version:
        return LATEST
    number = version_number(version)
    if number is None:
        raise not_carried(DIALECT_NAME, f"version '{version}' of model '{model}': a version is a number")
    return number


def _check_datatype(tensor: Tensor, signature: Signature) -> None:
    """The wire has no datatypes: the server would read the bytes as its own datatype."""
    spec = signature.input_names.get(tensor.name)
    if spec is not None and spec.datatype is not tensor.datatype:
        raise invalid_tensor(
            f"input '{tensor.name}' has the datatype {tensor.datatype.value}, its model takes "
            f"{spec.datatype.value}"
        )


def _batch_size(inputs: tuple[Tensor, ...], signature: Signature) -> int:
    """The batch of all inputs; 1 for a model without batches."""
    if not signature.max_batch_size or not inputs:
        return 1
    for tensor in inputs:
        if not tensor.shape:
            raise not_carried(
                DIALECT_NAME, f"input '{tensor.name}' without a batch dimension, which its model has"
            )
    size = inputs[0].shape[0]
    for tensor in inputs:
        if tensor.shape[0] != size:
            raise not_carried(
                DIALECT_NAME,
                f"input '{tensor.name}' with a batch of {tensor.shape[0]} and input '{inputs[0].name}' "
                f"with one of {size}",
            )
    if not size:
        raise not_carried(DIALECT_NAME, f"the empty batch of input '{inputs[0].name}'")
    return size


def _number_of_id(identity: str) -> int:
    if not (identity.isascii() and identity.isdigit() and len(identity) <= 20):
        return 0
    number = int(identity)
    return number if str(number) == identity and number <= _MAX_UINT64 else 0


def _outputs(request: InferRequest, signature: Signature) -> list[RequestedOutput]:
    if request.outputs is None:
        return [RequestedOutput(spec.name) for spec in signature.outputs]
    return list({output.name: output for output in request.outputs}.values())


def _write_place(entry: Any, place: SharedMemoryRef) -> None:
    entry.name, entry.offset, entry.byte_size = place.region, place.offset, place.size


def _write_sequence(header: Any, sequence: Sequence) -> None:
    if not isinstance(sequence.id, int):
        raise not_carried(DIALECT_NAME, f"the sequence id '{sequence.id}': a correlation id is a number")
    header.correlation_id = sequence.id
    header.flags = sequence.start * SEQUENCE_START | sequence.end * SEQUENCE_END


def _output(pending: PendingCall, spec: TensorSpec, raw: Any, take: Take) -> Tensor:
    name, datatype = spec.name, spec.datatype
    if not raw.dims:
        raise invalid_tensor(f"output '{name}' has no dims")
    shape = unfold(tuple(raw.dims), pending.batch_size, spec, pending.signature)
    count = element_count(shape, name)
    place = pending.placements.get(name)
    if place is not None:
        return Tensor(name, datatype, shape, place)
    contents = take(name, datatype, count)
    # for strings this size may be wrong: readers use the length of each
    if datatype is not Datatype.BYTES and raw.batch_byte_size not in (0, len(contents)):
        raise invalid_tensor(
            f"output '{name}' of shape {list(shape)} is said to have {raw.batch_byte_size} bytes"
        )
    return Tensor(name, datatype, shape, contents)
