"""How a plan for a local model reads messages and writes responses: by the slots of a template, or by the
codec, where the meaning of contents depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.noted_headers import NotedHeaders, names_of
from interlingua.protocols.splice import find_id, find_splice
from interlingua.protocols.templates import MessageTemplate, contents_in, has_tensors_alone, template_of
from interlingua.protocols.whole_message import answer_in_parts, answer_with, shell_of, whole_of
from interlingua.protocols.wire import Buffer
from interlingua.runtime.shared_memory import is_used
from interlingua.runtime.target import Target
from interlingua.schemas import (
    CancelToken,
    Context,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    SharedMemoryRef,
    Signature,
    Tensor,
)

_MOST_RESPONSES = 32
_MOST_BYTES = 1 << 16
"""The largest outputs of a response that is made by a template: two bytes number them."""

Encode = Callable[[InferResponse], Any]
Open = Callable[[Buffer, Context], Opened[Any]]
"""Opens a message that a plan may read."""


class LocalReader(Protocol):
    """Reads the messages of a ``template``, or any message."""

    template: MessageTemplate | None

    def read(self, message: Buffer, context: Context) -> tuple[InferRequest | None, Encode] | None:
        """The request in ``message`` and what encodes its response; no request if no plan can run it, None
        if it is another one. Raises as the codec."""


@dataclass(slots=True, eq=False)
class CodecReader:
    """Reads messages for ``target`` that ``endpoint`` opens like ``known``, as the ``field`` of ``request``,
    which has none in between; ``headers`` is the name of its field with these."""

    endpoint: Any
    request: Any
    field: str
    headers: str
    known: Opened[Any]
    target: Target
    template: ClassVar[None] = None

    def read(self, message: Buffer, context: Context) -> tuple[InferRequest | None, Encode] | None:
        """See ``LocalReader``."""
        known, like = self.known, self.request
        try:
            setattr(like, self.field, message)
            like.context = context
            if self.headers:
                setattr(like, self.headers, context.headers)
            found = self.endpoint.open(like)
            action, decode = found.action, found.action.decode
            if action is not known.action or found.model != known.model or found.version != known.version:
                return None
            assert decode is not None, "it has been decoded"  # noqa: S101
            request, form = decode(found, self.target.version(found.version).signature)
        finally:
            setattr(like, self.field, b"")
        encode = partial(action.encode, form)
        return (None if request.sequence is not None or is_used(request) else request), encode


@dataclass(slots=True, eq=False)
class SlotReader:
    """Reads messages of ``template`` for ``target``, decoded with ``signature`` as ``like``, which has no
    inputs; ``inputs`` make each of a slot."""

    template: MessageTemplate
    like: InferRequest
    inputs: tuple[tuple[Any, ...], ...]
    target: Target
    signature: Signature
    responses: ResponseTemplates

    def read(self, message: Buffer, context: Context) -> tuple[InferRequest | None, Encode] | None:
        """See ``LocalReader``."""
        like, template = self.like, self.template
        if self.target.version(like.version).signature is not self.signature:
            return None
        view, inputs = memoryview(message).toreadonly(), []
        for tensor, start, stop in self.inputs:
            inputs.append(tensor(view[start:stop]))
        identity = b"" if template.id is None else template.id_in(message)
        request = InferRequest(
            like.model,
            tuple(inputs),
            like.outputs,
            like.version,
            identity.decode(),
            like.parameters,
            None,
            0,
            0,
            context,
            None,
            like.answers,
        )
        return request, partial(self.responses.encode, identity, context)


class _Made(NamedTuple):
    """A ``response`` without its message, which is made of constant bytes and of ``pieces``: each is the
    bytes before an output, or before the id, and the number of that; the ``tail`` follows."""

    response: Any
    pieces: tuple[tuple[bytes, int], ...]
    tail: bytes


class ResponseTemplates:
    """Encodes responses to requests of ``template``, whose examples ``open`` opens, as their ``action``."""

    __slots__ = ("_action", "_known", "_misses", "_open", "_signature", "_template")

    def __init__(
        self, template: MessageTemplate, action: Action[Any], open_like: Open, signature: Signature
    ) -> None:
        self._template = template
        self._action = action
        self._open = open_like
        self._signature = signature
        self._known: dict[Hashable, _Made] = {}
        self._misses = 0

    def encode(self, identity: bytes, context: Context, response: InferResponse) -> Any:
        """The response to a request with this id and ``context``. Raises as the codec."""
        described: list[Hashable] = [response.model, response.version]
        contents: list[Any] = []
        for tensor in response.outputs:
            data = tensor.data
            if isinstance(data, SharedMemoryRef) or tensor.parameters:
                return self._encode(identity, context, response)
            described += tensor.name, tensor.datatype, tensor.shape, len(data)
            contents.append(data)
        if response.parameters:
            return self._encode(identity, context, response)
        key = tuple(described)
        known = self._known.get(key)
        if known is not None:
            contents.append(identity)
            parts: list[Any] = []
            for lead, number in known.pieces:
                parts += lead, contents[number]
            if known.tail:
                parts.append(known.tail)
            return answer_in_parts(known.response, parts)
        self._misses = misses = self._misses + 1
        encoded = self._encode(identity, context, response)
        if not misses & (misses - 1):  # seldom, if responses do not repeat
            made = self._made(identity, context, response, [len(each) for each in contents])
            if made is not None:
                if len(self._known) >= _MOST_RESPONSES:
                    del self._known[next(iter(self._known))]
                self._known[key] = made
        return encoded

    def _encode(self, identity: bytes, context: Context, response: InferResponse) -> Any:
        action = self._action
        assert action.decode is not None, "it has been decoded"  # noqa: S101
        opened = self._open(self._template.example(identity), context)
        _, form = action.decode(opened, self._signature)
        return action.encode(form, response)

    def _made(
        self, identity: bytes, context: Context, response: InferResponse, sizes: list[int]
    ) -> _Made | None:
        """How the response to requests like the one with this id and ``context`` is made of its outputs, of
        these sizes."""
        if not all(sizes) or not 0 < sum(sizes) <= _MOST_BYTES:
            return None
        ends = list(accumulate(sizes))
        slots, length = list(zip([0, *ends], ends, strict=False)), len(identity)
        noted = NotedHeaders(context.headers)
        other = Context(None, CancelToken(), "", "", context.peer, noted, context.server_id)
        opened = self._open(self._template.example(identity), other)
        assert self._action.decode is not None, "it has been decoded"  # noqa: S101
        _, form = self._action.decode(opened, self._signature)
        names = names_of(noted)
        first: Any = self._action.encode(form, response)
        if names_of(noted) != names:
            return None  # it depends on more headers than its request
        other.request_number = 1
        second = self._encode(identity, other, response)
        whole, shell = whole_of(first), shell_of(first)
        if whole is None or shell is None or (whole, shell) != (whole_of(second), shell_of(second)):
            return None  # it has the number of the request

        def make(data: bytes) -> bytes | None:
            view = memoryview(data)
            outputs = [
                replace(each, data=view[start:stop])
                for each, (start, stop) in zip(response.outputs, slots, strict=True)
            ]
            try:
                made = self._encode(data[ends[-1] :], other, replace(response, outputs=tuple(outputs)))
            except InferenceError:
                return None
            return whole_of(made) if shell_of(made) == shell else None

        ids = [(ends[-1], ends[-1] + length)] if length else []
        splice = find_splice(bytes(ends[-1]) + identity, slots, make, ids)
        if splice is None:
            return None
        numbers = {slot: number for number, slot in enumerate([*slots, *ids])}
        if any((start, stop) not in numbers for _, start, stop in splice.pieces):
            return None
        pieces = tuple([(lead, numbers[start, stop]) for lead, start, stop in splice.pieces])
        return _Made(answer_with(first, b""), pieces, splice.tail)


def local_readers(
    message: Buffer,
    opened: Opened[Any],
    target: Target,
    open_like: Open,
    by_codec: Callable[..., CodecReader],
    context: Context,
) -> list[Any]:
    """What reads messages like ``message``, which was ``opened``, for ``target``: by slots, if it has any,
    and ``by_codec``. ``context`` is like that of a request. Nothing if the model does not answer at once.
    Raises as the codec and the model."""
    action, signature = opened.action, target.version(opened.version).signature
    if action.decode is None or action.operation is not Operation.INFER:
        return []
    request, _ = action.decode(opened, signature)
    if not target.infers_at_once(request):
        return []
    known = replace(opened, message=None, argument=None, arriving=None)
    found: list[Any] = [by_codec(known, target)]
    slots, id_slot = contents_in(message, request.inputs), None
    if slots is None or request.wire_form is not None or not has_tensors_alone(request):
        return found
    if request.id:

        def id_of(data: bytes) -> str:
            assert action.decode is not None, "see above"  # noqa: S101
            return action.decode(open_like(data, context), signature)[0].id

        id_slot = find_id(message, slots, request.id, id_of)
        if id_slot is None:
            return found
    template = template_of(message, slots, id_slot)
    inputs = [
        (partial(Tensor, each.name, each.datatype, each.shape), start, stop)
        for each, (start, stop) in zip(request.inputs, slots, strict=True)
    ]
    like = replace(request, inputs=(), context=Context())
    responses = ResponseTemplates(template, action, open_like, signature)
    return [SlotReader(template, like, tuple(inputs), target, signature, responses), *found]
