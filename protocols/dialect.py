"""The parts of a dialect: for each transport, the endpoints of a server and the calls of a client.

The pipeline drives every endpoint in the same way: ``open`` reads just enough of the message to know the
operation and the model; for inference ``decode`` reads the rest with the model's signature; the operation
runs; ``encode`` writes the result in the requested form. ``fail`` writes an ``InferenceError`` of any step.
No function here awaits anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from interlingua.protocols.manifest import Manifest
from interlingua.protocols.wire import (
    ArrivingMessage,
    BrpcAnswer,
    BrpcRequest,
    FramedAnswer,
    FramedCall,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    Headers,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
    Prefix,
)
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
)

Call = TypeVar("Call", HttpCall, GrpcRequest, BrpcRequest, FramedCall)
Answer = TypeVar("Answer", HttpAnswer, GrpcAnswer, BrpcAnswer, FramedAnswer)
Reply = TypeVar("Reply", HttpReply, GrpcAnswer, BrpcAnswer, FramedReply)

ReplyForm = Any
"""The state of a codec between a request and its answer; opaque to other code."""


@dataclass(frozen=True, slots=True)
class Action(Generic[Answer]):
    """An operation of a binding.

    ``decode(opened, signature)``, for inference only, returns the IR request and the reply form.
    ``encode(form, result)`` takes that form, or the ``Opened`` for every other operation, and the result:

    ========================  =============================  =================================
    operation                 argument                       result
    ========================  =============================  =================================
    INFER, INFER_STREAM                                      ``InferResponse``
    LIVE, READY, MODEL_READY                                 ``Readiness``
    SERVER_METADATA                                          ``ServerMetadata``
    MODEL_METADATA                                           ``ModelMetadata``
    STATUS                                                   ``ServerStatus``, of one model where
                                                             ``Opened`` names one, and of one version
    REPOSITORY_INDEX          ``IndexQuery`` or None         ``tuple[ModelStatus, ...]``
    MODEL_CONFIG                                             serialized ``inference.ModelConfig``
    STATISTICS                                               ``tuple[ModelStatus, ...]``, of all models
                                                             where ``Opened.model`` names none
    MODEL_LOAD, MODEL_UNLOAD  ``ModelControl`` or None       None
    MODELS_RELOAD             ``tuple[ListedModel, ...]``    None
    SHARED_MEMORY_REGISTER    ``SharedMemoryRegion``         None
    SHARED_MEMORY_UNREGISTER  name, None for all             None
    SHARED_MEMORY_STATUS      name, None for all             ``tuple[SharedMemoryRegion, ...]``
    CUDA_SHARED_MEMORY_…      name, as above             as above; there are no regions
    TRACE_SETTINGS            changes, ``TraceSettings``     ``TraceSettings``
    LOG_SETTINGS              changes, ``LogSettings``       ``LogSettings``
    SET_ONLINE, SET_OFFLINE                                  None
    DEPLOYMENT                                               ``Deployment``, with the one model that
                                                             ``Opened.model`` names, or all
    METRICS                                                  ``Metrics``
    ========================  =============================  =================================

    INFER_STREAM encodes every response of ``Target.stream`` in order, those with an ``error`` and the bare
    final flag included; a result of None is not sent. An error before the first answer goes to ``fail``, a
    later one to ``encode``, as a final response. Over HTTP the answers form one streamed body with the status
    and headers of the first one; with ``collects``, ``encode`` returns one answer, to the final response.

    ``watched`` operations, on a streaming method, run again after each change, and their answer is sent
    whenever it differs, until the caller or the server ends the stream.

    With a ``passthrough`` or ``stream_passthrough``, the message may go to an upstream undecoded.

    Where answers have the number of their request in headers over HTTP, ``numbered(headers, context)`` gives
    those of one answer the number in ``context``.
    """

    operation: Operation
    encode: Callable[[ReplyForm, Any], Answer | None]
    decode: Callable[[Opened[Answer], Signature], tuple[InferRequest, ReplyForm]] | None = None
    watched: bool = False
    collects: bool = False
    passthrough: Passthrough[Any, Answer, Any] | None = None
    stream_passthrough: StreamPassthrough[Any, Answer, Any] | None = None
    numbered: Callable[[Headers, Context], Headers] | None = None


@dataclass(slots=True)
class Opened(Generic[Answer]):
    """A message read as far as routing needs. An empty ``model`` is the listener's default model. ``message``
    belongs to the codec; ``argument`` is that of the operation (see :class:`Action`). ``arriving`` is its
    request if the body is not complete yet. ``count`` counts a body that decoding has decompressed, and
    raises OVERLOADED if it is too large now; None for one that is not compressed."""

    action: Action[Answer]
    model: str = ""
    version: str = ""
    message: Any = None
    argument: Any = None
    arriving: HttpRequest | ArrivingMessage | None = None
    count: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class PassthroughNames:
    """The names in a message that passes through. ``model`` is the caller's name, ``remote`` the upstream's;
    ``order`` has the outputs in the caller's names. ``inputs`` and ``outputs`` map the caller's names to the
    upstream's where they differ, ``back`` the upstream's outputs to the caller's. ``signature`` has the
    caller's names; it is ``declared`` if it is not empty. ``version`` is the requested one."""

    model: str
    remote: str
    order: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    back: Mapping[str, str]
    signature: Signature
    declared: bool = True
    version: str = ""


@dataclass(frozen=True, slots=True)
class Passthrough(Generic[Call, Answer, Reply]):
    """How inference passes from a listener to an upstream of the same dialect and transport with its tensors
    undecoded: an action and a call with the same passthrough fit together.

    ``heads`` returns the message's tensors without their data, read with the signature in the caller's names;
    None if the message needs decoding or is invalid, for example with an input whose size does not fit its
    shape. ``call`` returns the call, None if the message needs decoding for its names. ``answer`` returns the
    caller's answer and the version that ran, or a response to encode; it raises as ``UpstreamCall.decode``. A
    passthrough to any transport of the dialect uses an ``InferRequest`` as its call and the response as its
    reply. None of these needs more of an HTTP body than its ``Prefix``; ``answer`` returns None if a reply
    that is still arriving needs decoding.

    A message of a sequence needs decoding. ``observable``: the action and the call can decode copies of the
    message and of the reply, so that it passes for an observed request too.

    For messages that differ in the contents of tensors alone, ``heads`` and ``answer`` have the same results,
    and ``call`` differs in the message alone. ``answer`` reads nothing of the tensors: ``without_contents``
    returns the message without them, for a plan to keep.
    """

    heads: Callable[[Opened[Answer], Signature], InferHeads | None]
    call: Callable[[Opened[Answer], PassthroughNames], Call | InferRequest | None]
    answer: Callable[[Opened[Answer], PassthroughNames, Reply], tuple[Answer, str] | InferResponse | None]
    observable: bool = True
    without_contents: Callable[[Opened[Answer]], Opened[Answer]] = lambda opened: opened


@dataclass(frozen=True, slots=True)
class StreamPassthrough(Generic[Call, Answer, Reply]):
    """As ``Passthrough``, for a streamed request: ``answer`` reads a piece of the reply and returns the
    answers that it completes, each with the version that ran and whether it is the last, or responses to
    encode."""

    heads: Callable[[Opened[Answer], Signature], InferHeads | None]
    call: Callable[[Opened[Answer], PassthroughNames], Call | None]
    answer: Callable[
        [Opened[Answer], PassthroughNames, Reply], Sequence[tuple[Answer, str, bool] | InferResponse]
    ]


# looked up with every request, by identity
@dataclass(frozen=True, slots=True, eq=False)
class HttpEndpoint:
    """A method and a path pattern, such as ``/v2/models/{model}/infer``; ``{name}`` matches one
    non-empty segment. A path of ``*`` matches everything, on listeners that speak this dialect alone.

    ``fail(request, opened, error)`` writes an error in the dialect's form; ``opened`` is None if the message
    could not be opened. Answers of a ``timed`` endpoint have the durations of stages in ``Server-Timing``. A
    ``page`` is for browsers: an endpoint of another dialect for the same method and path answers clients that
    do not accept HTML. With a ``prefix``, ``open`` needs nothing of the body; it changes nothing, and may be
    repeated. With ``any_case`` the literals of ``path``, in lower case, match in any case. A caller who may
    request none of the ``operations`` is refused before the body is read; there are none if ``fail`` needs
    the message.
    """

    method: str
    path: str
    open: Callable[[HttpRequest], Opened[HttpAnswer]]
    fail: Callable[[HttpRequest, Opened[HttpAnswer] | None, InferenceError], HttpAnswer]
    timed: bool = False
    page: bool = False
    prefix: Prefix | None = None
    any_case: bool = False
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class GrpcEndpoint:
    """A full gRPC method path, such as ``/inference.GRPCInferenceService/ModelInfer``.

    With ``streaming`` the call is a bidirectional stream of messages, each opened and answered like a unary
    call. Single answers keep the order of the messages; several answers to one message go out as they arrive.
    An answer of ``fail`` with code 0 is one more message; any other code ends the stream. With ``pinned`` all
    messages of one call go to one server of an upstream. The rest is as in :class:`HttpEndpoint`.
    """

    method: str
    open: Callable[[GrpcRequest], Opened[GrpcAnswer]]
    fail: Callable[[GrpcRequest, Opened[GrpcAnswer] | None, InferenceError], GrpcAnswer]
    streaming: bool = False
    pinned: bool = False
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class BrpcEndpoint:
    """A method of a bRPC service, such as ``grps.protos.v1.GrpsBrpcService`` / ``Predict``. Clients may omit
    the package of the service. The rest is as in :class:`HttpEndpoint`."""

    service: str
    method: str
    open: Callable[[BrpcRequest], Opened[BrpcAnswer]]
    fail: Callable[[BrpcRequest, Opened[BrpcAnswer] | None, InferenceError], BrpcAnswer]
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class FramedEndpoint:
    """The one endpoint of a listener whose connections carry only messages. The model is the listener's
    default."""

    open: Callable[[FramedRequest], Opened[FramedAnswer]]
    fail: Callable[[FramedRequest, Opened[FramedAnswer] | None, InferenceError], FramedAnswer]
    operations: tuple[Operation, ...] = ()


# compared by identity: calls that have the same one share a reply
@dataclass(frozen=True, slots=True, eq=False)
class SharedReply(Generic[Reply]):
    """A reply of an upstream that serves several calls, about any model: fetched once for concurrent calls
    and kept for ``keep_secs``. ``read`` parses it in a thread and raises as ``UpstreamCall.decode``."""

    read: Callable[[Reply], Any]
    keep_secs: float


@dataclass(frozen=True, slots=True)
class UpstreamCall(Generic[Call, Reply]):
    """One operation as a call to an upstream.

    ``encode(argument, signature)`` returns the call and the form that ``decode(form, reply)`` needs. The
    argument is an ``InferRequest`` for INFER, a ``ModelRef`` for operations of one model, else None; the
    signature is the upstream model's, if known. Results are as in :class:`Action`, for MODEL_CONFIG a
    serialized ``inference.ModelConfig``; REPOSITORY_INDEX may have names alone. ``decode`` raises the
    upstream's own error as an ``InferenceError`` with its text, BAD_UPSTREAM for an invalid answer.

    For INFER_STREAM ``decode`` gets every piece of the reply (over HTTP cut anywhere, empty at the end) and
    returns the responses that it completes, in order. A ``last_resort`` carries less than INFER: it is for
    decoupled models alone.

    With ``shared`` every argument gives the same request, the form is a function, and ``decode`` is
    ``form(shared.read(reply))``.
    To servers of an ``unnamed`` INFER tensors may be positions, in requests and in answers: it has the inputs
    of the signature in its order, and requests every output in that order, to select from.
    ``decode`` reads a header alike whose value matches its pattern in ``alike``.
    Some servers do not support an ``optional`` call: they close the connection, do nothing, or send a reply
    for which ``optional`` is true.
    """

    encode: Callable[[Any, Signature | None], tuple[Call, ReplyForm]]
    decode: Callable[[ReplyForm, Reply], Any]
    last_resort: bool = False
    unnamed: bool = False
    optional: Callable[[Reply], bool] | None = None
    passthrough: Passthrough[Call, Any, Reply] | None = None
    stream_passthrough: StreamPassthrough[Call, Any, Reply] | None = None
    shared: SharedReply[Reply] | None = None
    alike: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


PARAMETER_TYPES: frozenset[type] = frozenset({bool, int, float, str})
"""The types of parameter values."""


@dataclass(frozen=True, slots=True)
class Capability:
    """The features of a binding, or of a backend. A datatype that is neither ``exact`` nor ``widened`` is
    refused as UNREPRESENTABLE."""

    # tensors
    exact: frozenset[Datatype]  # survive a round trip bit for bit
    widened: Mapping[Datatype, Datatype] = field(default_factory=dict)  # travel as a wider type
    input_names: bool = True  # without names, tensors bind in the order of the signature
    output_names: bool = True
    scalars: bool = True
    folds_batch: bool = False  # the batch is not in the shapes: only the signature says where it belongs
    text_only: bool = False  # BYTES must be UTF-8
    nan_payloads: bool = True  # one NaN differs from another
    tensor_parameters: bool = False  # a tensor may have some, besides its data
    maps: bool = False  # a message may be a map of scalars by key; so is its answer
    shared_memory: bool = True

    # requests
    model_name: bool = True  # a server of the dialect has several models
    many_models: bool = True  # one address of ours has several models
    versions: Literal["text", "number", ""] = "text"  # any text, a number, none
    joined_versions: bool = False  # `name-version`: the router needs the versions of the model to split it
    ids: Literal["text", "number", ""] = "text"
    parameters: frozenset[type] = PARAMETER_TYPES  # the types of the values
    parameter_names: frozenset[str] | None = None  # None: any name
    sequences: frozenset[type] = frozenset({int, str})  # the types of the ids
    priorities: bool = True  # the priority and the timeout
    requested_outputs: bool = True  # a request can choose outputs
    classification: bool = True  # of listeners only: upstreams always send the whole tensor
    client_classification: bool = True  # whether our own client writes the class count

    # answers
    streams: Literal["whole", "flat", ""] = ""  # any number of answers; flat ones lack shapes and datatypes
    answer_versions: bool = True
    answer_parameters: bool = True

    # metadata
    signatures: bool = True
    batch_limits: bool = True  # there or in the model's configuration
    version_lists: bool = True

    # errors
    error_kinds: bool = True  # the client's fault differs from the server's
    reported_as: Mapping[ErrorCode, ErrorCode] = field(default_factory=dict)  # codes that arrive as another
    wordless: frozenset[ErrorCode] = frozenset()  # without their message where the request is unreadable

    def carries(self, datatype: Datatype) -> bool:
        """Whether ``datatype`` has a form, its own or a wider one."""
        return datatype in self.exact or datatype in self.widened


Endpoint = HttpEndpoint | GrpcEndpoint | BrpcEndpoint | FramedEndpoint
Calls = Mapping[Operation, UpstreamCall[Any, Any]]
"""The calls by operation; a dialect lacks the operations that are missing."""

FailureStatus = Callable[[InferenceError, Operation | None], int | str]
Unmatched = Callable[[HttpRequest, tuple[str, ...]], HttpAnswer]


# compared by identity: an option or a flavor makes another one
@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A dialect over a transport: the ``endpoints`` of listeners, of the transport's kind, the ``calls`` to
    upstreams, and the ``capability`` of both.

    ``prefixes`` are the paths that belong to it on a shared HTTP listener; ``unmatched(request, allowed)``
    answers a path or method without an endpoint (``allowed``: the methods of the path, empty for an unknown
    path). ``contracts`` are the descriptor sets of its gRPC services, as a package and a file in it.
    ``flavors`` are variants for other servers of the dialect, by the name in their metadata: their endpoints
    for listeners, their calls for upstreams. ``multiplexed`` are the bindings, by transport, that a listener
    answers on the same port. With ``te_with_length`` an HTTP listener takes requests with both
    ``Transfer-Encoding`` and ``Content-Length``, which RFC 9112, section 6.1, calls ambiguous.
    ``failure_status`` returns the status that an answer to a failed operation has besides that of the
    transport, for the log.
    """

    dialect: str
    transport: str
    capability: Capability
    endpoints: Sequence[Any] = ()
    calls: Calls = field(default_factory=dict)
    unmatched: Unmatched | None = None
    prefixes: tuple[str, ...] = ()
    contracts: tuple[tuple[str, str], ...] = ()
    flavors: Mapping[str, Binding] = field(default_factory=dict)
    multiplexed: Mapping[str, Binding] = field(default_factory=dict)
    te_with_length: bool = False
    failure_status: FailureStatus | None = None

    @property
    def name(self) -> str:
        return f"{self.dialect}/{self.transport}"

    @property
    def call_flavors(self) -> Mapping[str, Calls]:
        """The calls by flavor, where they differ from ``calls``."""
        return {name: flavor.calls for name, flavor in self.flavors.items() if flavor.calls is not self.calls}

    def flavored(self, flavor: str) -> Binding:
        """The binding of ``flavor``, or this one."""
        return self.flavors.get(flavor, self)


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect: its bindings, by transport. ``configure(section, listener)`` applies the options that the
    manifest declares."""

    name: str
    bindings: Mapping[str, Binding]
    manifest: Manifest = field(default_factory=Manifest)
    configure: Callable[[Any, Any], Dialect] | None = None

    @classmethod
    def of(cls, *bindings: Binding, **facts: Any) -> Dialect:
        return cls(bindings[0].dialect, {binding.transport: binding for binding in bindings}, **facts)

    @property
    def flavors(self) -> tuple[str, ...]:
        """The servers of the dialect with quirks of their own, the default first."""
        names = dict.fromkeys(name for binding in self.bindings.values() for name in binding.flavors)
        return (self.manifest.default_flavor, *names) if names else ()
