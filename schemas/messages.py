"""Requests, answers and metadata between a listener, the router and a target, in the words of the Open
Inference Protocol. The form of an answer (binary or text, order of outputs) is in a codec's reply form."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from interlingua.schemas.datatypes import Datatype
from interlingua.schemas.errors import InferenceError
from interlingua.schemas.tensor import SharedMemoryRef, Tensor
from interlingua.schemas.trace import Trace

Parameter = bool | int | float | str
"""The value of a request or response parameter; integers fit into 64 bits, signed or unsigned."""

_NO_PARAMETERS: Mapping[str, Parameter] = {}


class CancelToken:
    """Signals running work that its caller is gone."""

    # without __init__: every request has a token, and few use it
    cancelled = False
    _callbacks: dict[Callable[[], object], None] | None = None

    def cancel(self) -> None:
        """Mark as cancelled and run every callback once."""
        if not self.cancelled:
            self.cancelled = True
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks or ():
                callback()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Run ``callback`` when cancelled; at once if already cancelled."""
        if self.cancelled:
            callback()
        elif self._callbacks is None:
            # a dictionary keeps their order and removes one in constant time
            self._callbacks = {callback: None}
        else:
            self._callbacks[callback] = None

    def forget(self, callback: Callable[[], object]) -> None:
        """Remove ``callback``."""
        if self._callbacks is not None:
            self._callbacks.pop(callback, None)


@dataclass(slots=True)
class Context:
    """The data of a request apart from its content.

    ``deadline`` is a ``time.monotonic()`` value in seconds, None for no limit. ``traceparent`` and
    ``tracestate`` are the W3C headers as received. ``server_id`` is the server's name among replicas,
    ``request_number`` a count of all requests of the process, from 1.

    ``began`` is the ``time.monotonic_ns()`` at which the handler got the request. ``timings`` are nanoseconds
    by stage (decode, queue, exec, upstream, encode), ``ended`` the ``time.monotonic_ns()`` of their ends.
    ``target`` is the model that the router has chosen, by the route with the number ``route``, 0 for none;
    ``version`` is the version of it that has answered, ``upstream`` the URL of the server that got the
    request last, empty for a local model.

    ``failure`` is the error in an answer of a stream that had begun. ``caller`` is the run of a model that
    made the request, for ``runtime`` alone. ``copied``: it is a copy for a mirror, and in no statistics.
    ``pins`` are the upstream servers of a stream's messages, by pool. ``identity`` is the name of the client,
    if it has presented valid credentials. ``trace`` records the request, if it is sampled;
    ``sampling_decided``: it is not, or will not be.

    ``arrived`` is the ``time.monotonic_ns()`` of its headers, 0 if the body came with them or the transport
    has none; ``complete`` that of its last byte, if it was handled before. A transport that ``reports_write``
    calls ``written``, if that is set, once it has written the answer, or never will. ``sent`` is the call to
    an upstream that a plan has sent, for ``runtime`` alone.
    """

    deadline: float | None = None
    cancel: CancelToken = field(default_factory=CancelToken)
    traceparent: str = ""
    tracestate: str = ""
    peer: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    server_id: str = ""
    request_number: int = 0
    began: int = 0
    timings: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    target: str = ""
    version: str = ""
    upstream: str = ""
    failure: InferenceError | None = None
    caller: object = None
    copied: bool = False
    pins: dict[object, object] | None = None
    identity: str | None = None
    trace: Trace | None = None
    route: int = 0
    arrived: int = 0
    complete: int = 0
    reports_write: bool = False
    written: Callable[[], object] | None = None
    sent: Any = None
    sampling_decided: bool = False

    @property
    def received_ns(self) -> int:
        """How long the body has taken to arrive after the headers; 0 if that is not known."""
        return (self.complete or self.began) - self.arrived if self.arrived else 0

    def write_ended(self) -> None:
        """The answer is written, or never will be."""
        self.reports_write = False
        if self.written is not None:
            written, self.written = self.written, None
            written()


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model by name and version (empty: the version policy decides)."""

    name: str
    version: str = ""


@dataclass(slots=True)
class RequestedOutput:
    """A requested output. ``classification`` is the number of top classes that replace the raw tensor, 0 for
    the tensor itself."""

    name: str
    classification: int = 0
    placement: SharedMemoryRef | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: _NO_PARAMETERS)


@dataclass(frozen=True, slots=True)
class Sequence:
    """The place of a request in a sequence; ``id`` is the correlation id, never 0 or empty."""

    id: int | str
    start: bool = False
    end: bool = False


SEQUENCE_FLAGS = ("sequence_start", "sequence_end")
"""The parameters, with the value True, of a request that has the flags of a sequence without an id."""


@dataclass(slots=True)
class InferRequest:
    """A request to a model.

    ``inputs`` have full shapes. ``outputs`` None means all outputs, an empty tuple none. ``parameters`` have
    no field here. ``priority`` 0 is the model's default; ``timeout_us`` bounds the time in the queue, 0 for
    the model's default. ``answers`` is the number that the caller accepts: ``one``, which a decoupled model
    refuses; its ``only`` one; or ``many``, a stream. ``wire_form`` is the form of the message, for codecs of
    the same dialect alone.
    """

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] | None = None
    version: str = ""
    id: str = ""
    parameters: Mapping[str, Parameter | bytes] = field(default_factory=lambda: _NO_PARAMETERS)
    sequence: Sequence | None = None
    priority: int = 0
    timeout_us: int = 0
    context: Context = field(default_factory=Context, compare=False)
    wire_form: object = field(default=None, compare=False, repr=False)
    answers: Literal["one", "only", "many"] = field(default="one", compare=False)

    def redirected(
        self, model: str, inputs: tuple[Tensor, ...], outputs: tuple[RequestedOutput, ...] | None
    ) -> InferRequest:
        """The same request to another model, with the tensors that it has there."""
        return InferRequest(
            model,
            inputs,
            outputs,
            self.version,
            self.id,
            self.parameters,
            self.sequence,
            self.priority,
            self.timeout_us,
            self.context,
            self.wire_form,
            self.answers,
        )


class TensorHead(NamedTuple):
    """An input without its bytes."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]


class InferHeads(NamedTuple):
    """The tensors of an inference message without their data: its inputs, and the names of requested outputs,
    none for all."""

    inputs: tuple[TensorHead, ...]
    outputs: tuple[str, ...]


@dataclass(slots=True)
class InferResponse:
    """A model's answer; ``version`` is the version that ran. ``final`` is False if a stream continues.
    ``error`` is that of one failed response in a stream, without outputs. ``ordered``: it follows the answers
    to earlier requests of its stream, unlike those of decoupled models. ``wire_form`` is as in a request, for
    a caller in the upstream's dialect."""

    model: str
    outputs: tuple[Tensor, ...]
    version: str = ""
    id: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: _NO_PARAMETERS)
    final: bool = True
    error: InferenceError | None = None
    ordered: bool = True
    wire_form: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as its model declares it. ``shape`` is full, -1 for a free dimension;
    ``labels`` name the classes of an output, by index; ``parameters`` are for clients to read."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    optional: bool = False
    labels: tuple[str, ...] = ()
    description: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: _NO_PARAMETERS, hash=False)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model, for codecs. With ``max_batch_size`` above 0 the first dimension of
    every shape is the batch. ``elsewhere``: the model is on an upstream server, which reads the parameters of
    tensors itself."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch_size: int = 0
    elsewhere: bool = False

    @cached_property
    def input_names(self) -> Mapping[str, TensorSpec]:
        """The inputs by name, in the model's order."""
        return {spec.name: spec for spec in self.inputs}

    @cached_property
    def output_names(self) -> Mapping[str, TensorSpec]:
        """The outputs by name, in the model's order."""
        return {spec.name: spec for spec in self.outputs}


@dataclass(frozen=True, slots=True)
class Leeway:
    """What a signature does not determine: its ``inputs`` at all, its ``outputs``, ``missing`` inputs, their
    ``datatypes``, the first dimension of shapes (``batches``), whole ``shapes`` by input, the name of the
    only input (``names``), whether ``parameters`` may be bytes. ``carried`` are datatypes that arrive as
    another one, equal in value."""

    inputs: bool = False
    outputs: bool = False
    missing: bool = False
    datatypes: bool = False
    batches: bool = False
    shapes: frozenset[str] = frozenset()
    names: bool = False
    parameters: bool = False
    carried: Mapping[Datatype, Datatype] = field(default_factory=dict)


NO_LEEWAY = Leeway()


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model's metadata. ``versions`` are those that are ready; ``parameters`` are for clients; ``config``
    is its serialized ``inference.ModelConfig``, if part of the same answer; ``leeway`` is what the dialect or
    the server leaves open in a signature; ``server`` is for dialects without metadata of a server."""

    name: str
    signature: Signature
    versions: tuple[str, ...] = ()
    platform: str = ""
    description: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: _NO_PARAMETERS, hash=False)
    config: bytes = field(default=b"", compare=False, repr=False)
    leeway: Leeway = field(default=NO_LEEWAY, compare=False, repr=False)
    server: ServerMetadata | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """A server's metadata."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Readiness:
    """An answer to a probe; ``reason`` says why it is not ready. ``leaving``: the server is shutting down.
    ``version`` is the one of a model that an upstream reports, if it reports one."""

    ready: bool
    reason: str = ""
    leaving: bool = False
    version: str = ""


class Operation(enum.Enum):
    """The operations of a server in all dialects; each has endpoints for some of them."""

    INFER = "infer"
    INFER_STREAM = "infer_stream"
    LIVE = "live"
    READY = "ready"
    MODEL_READY = "model_ready"
    SERVER_METADATA = "server_metadata"
    MODEL_METADATA = "model_metadata"
    MODEL_CONFIG = "model_config"
    STATISTICS = "statistics"
    STATUS = "status"
    REPOSITORY_INDEX = "repository_index"
    MODEL_LOAD = "model_load"
    MODEL_UNLOAD = "model_unload"
    MODELS_RELOAD = "models_reload"
    SHARED_MEMORY_REGISTER = "shared_memory_register"
    SHARED_MEMORY_STATUS = "shared_memory_status"
    SHARED_MEMORY_UNREGISTER = "shared_memory_unregister"
    CUDA_SHARED_MEMORY_REGISTER = "cuda_shared_memory_register"
    CUDA_SHARED_MEMORY_STATUS = "cuda_shared_memory_status"
    CUDA_SHARED_MEMORY_UNREGISTER = "cuda_shared_memory_unregister"
    TRACE_SETTINGS = "trace_settings"
    LOG_SETTINGS = "log_settings"
    SET_ONLINE = "set_online"
    SET_OFFLINE = "set_offline"
    DEPLOYMENT = "deployment"
    METRICS = "metrics"

    __hash__ = object.__hash__
