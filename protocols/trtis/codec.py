"""What HTTP and gRPC share of version 1: the header of a request into the IR, the header of an answer.

The wire's dimensions never contain the batch, the IR's shapes always do; the model's signature says whether
there is one. A request is checked against the signature before it runs, with the messages of the original
server, which its users match on. ``codec_http`` and ``codec_grpc`` place headers and tensor bytes; statuses
and all other operations belong to ``status``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from interlingua.protocols.classification import check_ranked, classify
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
    element_count,
    invalid_tensor,
    not_carried,
    unrepresentable,
)
from interlingua.schemas import Sequence as SequencePosition
from interlingua.schemas.status import UNNAMED_VERSION
from interlingua.schemas.trtis import MESSAGES

DIALECT_NAME = "trtis"

REQUEST_HEADER: Any = MESSAGES["nvidia.inferenceserver.InferRequestHeader"]
RESPONSE_HEADER: Any = MESSAGES["nvidia.inferenceserver.InferResponseHeader"]

DATATYPE_NUMBERS: dict[Datatype, int] = {
    datatype: number
    for number, datatype in enumerate(
        (
            Datatype.BOOL,
            Datatype.UINT8,
            Datatype.UINT16,
            Datatype.UINT32,
            Datatype.UINT64,
            Datatype.INT8,
            Datatype.INT16,
            Datatype.INT32,
            Datatype.INT64,
            Datatype.FP16,
            Datatype.FP32,
            Datatype.FP64,
            Datatype.BYTES,
        ),
        start=1,
    )
}
"""The ``DataType`` of the wire; BF16 has none."""

SEQUENCE_START, SEQUENCE_END = 1, 2
"""The bits of ``flags``."""

_MAX_INT64 = 2**63 - 1
_SCALAR = (1,)

Take = Callable[[str, int], memoryview]
"""``take(name, size)``: the next ``size`` bytes of the request, for input ``name``. Raises if there are
fewer."""


@dataclass(slots=True)
class TrtisReplyForm:
    """The form of an answer: its id and batch, the requested outputs in order, the signature for folding
    them, and the context of its status."""

    id: int
    batch_size: int
    outputs: tuple[RequestedOutput, ...]
    signature: Signature
    context: Context


def fold(shape: tuple[int, ...], signature: Signature) -> tuple[int, ...]:
    """The wire's dimensions of a full ``shape``: without the batch. A scalar has the dimension 1, which
    models of the original server declare."""
    return (shape[1:] if signature.max_batch_size else shape) or _SCALAR


def unfold(
    dims: tuple[int, ...], batch_size: int, spec: TensorSpec | None, signature: Signature
) -> tuple[int, ...]:
    """The full shape of the wire's ``dims``: the inverse of :func:`fold`. ``spec`` is the declared tensor, if
    known."""
    batch = (batch_size,) if signature.max_batch_size else ()
    if dims == _SCALAR and spec is not None and len(spec.shape) == len(batch):
        return batch
    return batch + dims


# --- requests


def decode_request(
    header: Any,
    model: str,
    version: str,
    signature: Signature,
    context: Context,
    take: Take,
    *,
    shared_memory_size: str = "size",
) -> tuple[InferRequest, TrtisReplyForm]:
    """The request with ``header``, an ``InferRequestHeader``, and the form of its answer.

    ``take`` is called once for every input that is not in shared memory, in order. ``shared_memory_size`` is
    the name of the size of a region in errors. Raises INVALID_TENSOR naming the input or output,
    UNREPRESENTABLE for an output in BF16.
    """
    check = _Check(model, signature)
    # in the original's order: duplicates are reported before surplus inputs
    _once(header.input, "input '{}' already exists in request")
    _once(header.output, "output '{}' already requested")
    check.batch(header.batch_size)
    check.inputs(header.input)
    outputs = tuple(check.outputs(header.output))
    inputs = [check.input(entry, header.batch_size, take, shared_memory_size) for entry in header.input]
    identity = header.id
    request = InferRequest(
        model=model,
        inputs=tuple(inputs),
        outputs=outputs,
        version=version,
        id=str(identity) if identity else "",
        sequence=_sequence(header),
        priority=header.priority,
        timeout_us=header.timeout_microseconds,
        context=context,
    )
    return request, TrtisReplyForm(identity, header.batch_size, outputs, signature, context)


def _sequence(header: Any) -> SequencePosition | None:
    """The place in a sequence; None without a correlation id, whatever the flags."""
    correlation_id, flags = header.correlation_id, header.flags
    if not correlation_id:
        return None
    return SequencePosition(correlation_id, bool(flags & SEQUENCE_START), bool(flags & SEQUENCE_END))


class _Check:
    """Checks the parts of a request against the signature of ``model``."""

    __slots__ = ("_model", "_signature")

    def __init__(self, model: str, signature: Signature) -> None:
        self._model = model
        self._signature = signature

    def batch(self, size: int) -> None:
        limit = self._signature.max_batch_size
        if not size:
            raise invalid_tensor(f"inference request batch-size must be >= 1 for '{self._model}'")
        # a model without batches has a batch of one; for others the message has 0
        if size > max(limit, 1):
            raise invalid_tensor(f"inference request batch-size must be <= {limit} for '{self._model}'")

    def inputs(self, entries: Sequence[Any]) -> None:
        """Raise for a missing or an unknown input; duplicates are known to be absent."""
        specs = self._signature.input_names
        required = sum(not spec.optional for spec in specs.values())
        if not required <= len(entries) <= len(specs):
            expected = required if len(entries) < required else len(specs)
            raise invalid_tensor(
                f"expected {expected} inputs but got {len(entries)} inputs for model '{self._model}'"
            )
        for entry in entries:
            if entry.name not in specs:
                raise invalid_tensor(f"unexpected inference input '{entry.name}' for model '{self._model}'")

    def outputs(self, entries: Sequence[Any]) -> Iterator[RequestedOutput]:
        """The requested outputs, in order."""
        specs = self._signature.output_names
        for entry in entries:
            name, count = entry.name, entry.cls.count
            spec = specs.get(name)
            if spec is None:
                raise invalid_tensor(f"unexpected inference output '{name}' for model '{self._model}'")
            # the original servers do not check the size against the region; perf_client of 1.9 to 1.12 states
            # 102,400 bytes for every output, in a region of the output's size
            placement = _place(entry, upper_limit=True)
            if not count:
                check_carried("output", name, spec.datatype)
            elif placement is None:
                check_ranked(name, spec.datatype)
            else:
                raise invalid_tensor(f"output '{name}' requests classification together with shared memory")
            yield RequestedOutput(name, count, placement)

    def input(self, entry: Any, batch_size: int, take: Take, shared_memory_size: str) -> Tensor:
        """One input, over the bytes of ``take`` or in shared memory."""
        name = entry.name
        spec = self._signature.input_names[name]
        check_carried("input", name, spec.datatype)
        shape = unfold(self._dims(entry.dims, spec), batch_size, spec, self._signature)
        stated = entry.batch_byte_size
        if spec.datatype is Datatype.BYTES:
            element_count(shape, name)
            size = stated
        else:
            size = element_count(shape, name) * spec.datatype.itemsize
            if stated not in (0, size):
                raise invalid_tensor(
                    f"specific batch-byte-size for input '{name}' does not match expected byte-size "
                    f"calculated from shape and datatype for model '{self._model}': {stated} is not {size}"
                )
        place = _place(entry)
        if place is None:
            data = take(name, size)
            if spec.datatype is Datatype.BYTES:
                return _strings(name, shape, data)
            return Tensor(name, spec.datatype, shape, data)
        if place.size != size:
            raise invalid_tensor(
                f"unexpected {shared_memory_size} {place.size} for input '{name}', "
                f"expecting {size} for model '{self._model}'"
            )
        return Tensor(name, spec.datatype, shape, place)

    def _dims(self, given: Sequence[int], spec: TensorSpec) -> tuple[int, ...]:
        """The dimensions of an input. A request may omit them if the model declares no free one."""
        declared = spec.shape[1:] if self._signature.max_batch_size else spec.shape
        dims = tuple(given)
        if not dims:
            if -1 in declared:
                raise invalid_tensor(
                    f"model supports variable-size for input '{spec.name}', "
                    f"request must specify input shape for model '{self._model}'"
                )
            return declared
        # an upstream without a shape in its metadata looks like a scalar
        unknown = not declared and not self._signature.max_batch_size
        if not unknown and not _fits(dims, declared or _SCALAR):
            raise invalid_tensor(
                f"unexpected shape for input '{spec.name}' for model '{self._model}'. "
                f"Expected {_listed(declared or _SCALAR)}, got {_listed(dims)}"
            )
        return dims


def _once(entries: Sequence[Any], refusal: str) -> None:
    """Refuse the first repeated name of ``entries``; ``refusal`` is a format for it."""
    if len(entries) < 2:
        return
    given = set[str]()
    for entry in entries:
        if entry.name in given:
            raise invalid_tensor(refusal.format(entry.name))
        given.add(entry.name)


def _place(entry: Any, *, upper_limit: bool = False) -> SharedMemoryRef | None:
    if not entry.HasField("shared_memory"):
        return None
    place = entry.shared_memory
    return SharedMemoryRef(place.name, place.offset, place.byte_size, upper_limit)


def _strings(name: str, shape: tuple[int, ...], data: memoryview) -> Tensor:
    try:
        return Tensor.checked(name, Datatype.BYTES, shape, data)
    except InferenceError:
        found, position, expected = 0, 0, element_count(shape)
        # one surplus element is enough
        while position + 4 <= len(data) and found <= expected:
            position += 4 + int.from_bytes(data[position : position + 4], "little")
            found += 1
        if position == len(data) or found > expected:
            raise invalid_tensor(
                f"unexpected number of string elements {found} for inference input '{name}', "
                f"expecting {expected}"
            ) from None
        raise invalid_tensor(
            f"incomplete string data for inference input '{name}': its {len(data)} bytes end inside "
            "an element"
        ) from None


def _fits(dims: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    if len(dims) != len(declared):
        return False
    for given, expected in zip(dims, declared, strict=True):
        if given != expected if expected != -1 else given < 0:
            return False
    return True


# --- answers


def encode_response(form: TrtisReplyForm, response: InferResponse) -> tuple[Any, list[Buffer]]:
    """An ``InferResponseHeader`` and the contents of its outputs, in the requested order; empty for classes
    and shared memory.

    A version that is other text is omitted. Raises UNREPRESENTABLE for an output in BF16 and for names that
    are not Unicode; MODEL_FAILED for an output that is missing or has another batch than the request.
    """
    given = {tensor.name: tensor for tensor in response.outputs}
    contents: list[Buffer] = []
    try:
        header = RESPONSE_HEADER(
            model_name=response.model,
            model_version=answered_version(response.version),
            batch_size=form.batch_size,
            id=form.id,
        )
        for requested in form.outputs:
            tensor = given.get(requested.name)
            if tensor is None:
                _failed(f"model '{response.model}' answered without output '{requested.name}'")
            _check_batch(form, response.model, tensor)
            output = header.output.add(name=requested.name)
            if requested.classification:
                _write_classes(output, form.signature, tensor, requested.classification)
                contents.append(b"")
            else:
                contents.append(_write_raw(output.raw, form.signature, tensor))
    except ValueError as error:
        raise not_carried(DIALECT_NAME, f"this: {error}") from error
    return header, contents


def answered_version(version: str) -> int:
    """The ``model_version`` of an answer by ``version``, as Status lists it; 0, none, for text. An upstream
    that states no version has the one of Status: 0 would be a version of its own."""
    return version_number(version or UNNAMED_VERSION) or 0


def version_number(version: str) -> int | None:
    """``version`` as a number from 0 to 2^63-1, None for other text."""
    if not (version.isascii() and version.isdigit() and len(version) < 20):
        return None
    number = int(version)
    return number if number <= _MAX_INT64 else None


def check_carried(kind: str, name: str, datatype: Datatype) -> None:
    """Raise UNREPRESENTABLE for an input or output (``kind``) of a datatype that the wire lacks."""
    if datatype not in DATATYPE_NUMBERS:
        raise unrepresentable(
            f"{kind} '{name}' has the datatype {datatype.value}, which dialect '{DIALECT_NAME}' cannot carry"
        )


def _write_raw(raw: Any, signature: Signature, tensor: Tensor) -> Buffer:
    check_carried("output", tensor.name, tensor.datatype)
    raw.dims.extend(fold(tensor.shape, signature))
    if isinstance(tensor.data, SharedMemoryRef):
        # the place may be larger than the tensor; strings are not measured
        fixed = element_count(tensor.shape, tensor.name) * tensor.datatype.itemsize
        raw.batch_byte_size = tensor.data.size if tensor.datatype is Datatype.BYTES else fixed
        return b""
    raw.batch_byte_size = len(tensor.data)
    return tensor.data


def _write_classes(output: Any, signature: Signature, tensor: Tensor, count: int) -> None:
    spec = signature.output_names.get(tensor.name)
    labels = spec.labels if spec else ()
    for entry in classify(tensor, count, labels, batched=signature.max_batch_size > 0):
        classes = output.batch_classes.add().cls
        for ranked in entry:
            value = ranked.value
            if isinstance(value, int):  # rounded once: by way of a double it may become another float
                value = np.array(value).astype(np.float32).item()
            classes.add(idx=ranked.place, value=value, label=ranked.label)


def _check_batch(form: TrtisReplyForm, model: str, tensor: Tensor) -> None:
    if form.signature.max_batch_size and tensor.shape[:1] != (form.batch_size,):
        _failed(
            f"output '{tensor.name}' of model '{model}' has shape {_listed(tensor.shape)}, whose first "
            f"dimension is not the batch of {form.batch_size}"
        )


def _listed(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims[:16]))}]"


def _failed(message: str) -> NoReturn:
    raise InferenceError(ErrorCode.MODEL_FAILED, message)
