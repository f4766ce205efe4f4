"""How an upstream gets messages that repeat one, and how the caller gets the replies: learned from what the
pipeline does with that message.

Contract: what the pipeline makes of a message is verified by ``protocols.splice`` to be a splice of it,
whether it passes through or is decoded. So it is with the replies; one that no splice fits is read by the
code that the pipeline has for it, and one that this refuses, by the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from interlingua.protocols.dialect import Action, Opened, Passthrough, Repeats, UpstreamCall
from interlingua.protocols.noted_headers import NotedHeaders
from interlingua.protocols.repeated import LONGEST, repeated_form
from interlingua.protocols.repeated_messages import RepeatedMessages
from interlingua.protocols.splice import Place, Splice, find_splice, place_in, surroundings
from interlingua.protocols.whole_message import (
    answer_with,
    message_of,
    reply_with,
    shell_of,
    whole_of,
    without_message,
)
from interlingua.protocols.wire import ArrivingMessage, Buffer, FramedCall, HttpCall, HttpReply
from interlingua.runtime.models.statistics import batch_size
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.forward import ReceivedMessage, UpstreamForward
from interlingua.runtime.upstream.names import UpstreamNames
from interlingua.runtime.upstream.passing import UpstreamPassing
from interlingua.runtime.upstream.signature import KnownSignature, UpstreamSignature
from interlingua.runtime.upstream.unnamed import in_signature_order
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    InferenceError,
    InferRequest,
    SharedMemoryRef,
    Tensor,
)

_LONGEST = 1 << 17
"""The size in bytes of the longest message that is spliced: the copies of a longer one cost more than its
codecs."""

_WITH_MEANING = frozenset({Datatype.BYTES, Datatype.BOOL})
"""Datatypes whose contents a codec may check."""


class _Read(NamedTuple):
    """The caller's response to a reply, the version that ran, and the outputs of the reply, if it was
    decoded."""

    response: Any
    version: str
    outputs: tuple[Tensor, ...] = ()


class _Exchange(Protocol):
    """What the pipeline does with a message, and with the replies to those like it. Both raise as the
    codecs."""

    decodes: bool
    answer: Callable[[Any], Any] | None
    """Reads replies as ``UpstreamForward.read``, if nothing else is to be learned from them."""

    def call(self, data: Buffer) -> Any:
        """The call for ``data``; None if the pipeline does something else with it."""

    def read(self, reply: Any) -> _Read | None:
        """The response to ``reply``; None if the pipeline has to read it."""


class _Decoded:
    """A message is decoded for the upstream, and replies for the caller."""

    decodes = True
    answer: Callable[[Any], Any] | None = None

    def __init__(self, learning: UpstreamLearning, known: KnownSignature, received: ReceivedMessage) -> None:
        self._learning = learning
        self._known = known
        self._received = received._replace(message=b"")
        self._infer: UpstreamCall[Any, Any] | None = learning.upstream.infer_call
        self._first: tuple[InferRequest, Action[Any], Any, Any] | None = None

    def call(self, data: Buffer) -> Any:
        """See ``_Exchange``."""
        received, learning, known, infer = self._received, self._learning, self._known, self._infer
        opened = received.open(data)
        if infer is None or (decoded := decoded_tensors(opened, known)) is None:
            return None
        request, form = decoded
        request.model, request.context = received.model, received.context
        if learning.strict:
            known.check.check(request)
        remote = learning.names.to_upstream(request, learning.remote)
        if infer.unnamed:
            remote = in_signature_order(remote, known.remote)
        made, pending = infer.encode(remote, known.remote)
        if self._first is None:  # without its inputs, which refer to the message
            self._first = replace(request, inputs=()), opened.action, form, pending
        return made

    def read(self, reply: Any) -> _Read | None:
        """See ``_Exchange``."""
        if self._first is None or self._infer is None:
            return None
        request, action, form, pending = self._first
        response = self._infer.decode(pending, reply)
        outputs, names = response.outputs, self._learning.names
        response.outputs = names.chosen(names.answered(response), request.outputs, self._known.local)
        response.model, response.id = request.model, request.id
        return _Read(action.encode(form, response), response.version, outputs)


class _Passthrough:
    """A message passes through, and so do replies."""

    decodes = False

    def __init__(
        self,
        learning: UpstreamLearning,
        known: KnownSignature,
        received: ReceivedMessage,
        passthrough: Passthrough[Any, Any, Any],
    ) -> None:
        self._learning = learning
        self._known = known
        self._received = received._replace(message=b"")
        self._passthrough = passthrough
        self._infer: UpstreamCall[Any, Any] | None = learning.upstream.infer_call
        self.answer: Callable[[Any], Any] | None = None
        self._last: tuple[Callable[[Any], Any], Any] | None = None  # how replies to the last call are read

    def call(self, data: Buffer) -> Any:
        """See ``_Exchange``."""
        received, known, pending, infer = self._received, self._known, None, self._infer
        opened = received.open(data)
        place = received.model, received.version
        prepared = self._learning.passing.prepared(self._passthrough, opened, known, *place)
        if prepared is None or infer is None:
            return None
        made = prepared.message
        if isinstance(made, InferRequest):
            made, pending = infer.encode(made, known.remote)
        kept = self._passthrough.without_contents(opened)
        self._last = partial(self._passthrough.answer, kept, prepared.names), pending
        if pending is None:
            self.answer = self._last[0]
        return made

    def read(self, reply: Any) -> _Read | None:
        """See ``_Exchange``."""
        if self._last is None or self._infer is None:
            return None
        answer, pending = self._last
        found = answer(reply if pending is None else self._infer.decode(pending, reply))
        return _Read(*found) if type(found) is tuple else None


@dataclass(slots=True, eq=False)
class UpstreamLearning:
    """Learns from messages to the model ``remote`` of ``upstream``; if ``strict``, only those are sent that
    fit the signature."""

    remote: str
    upstream: Upstream
    names: UpstreamNames
    signatures: UpstreamSignature
    counts: UpstreamCounts
    strict: bool
    passing: UpstreamPassing

    def forward(self, target: object, received: ReceivedMessage) -> UpstreamForward | None:
        """How messages that repeat ``received`` are sent without a task; None if they are not. Raises as the
        codecs."""
        known, upstream = self.signatures.known(received.version), self.upstream
        if known is None or upstream.infer_call is None or not upstream.sends_at_once:
            return None
        if not upstream.learning.begin():
            return None
        try:
            return self._found(target, received, known)
        finally:
            upstream.learning.end()

    def _found(
        self, target: object, received: ReceivedMessage, known: KnownSignature
    ) -> UpstreamForward | None:
        message, opened = received.message, received.open(received.message)
        passthrough = opened.action.passthrough
        exchange: _Exchange = _Decoded(self, known, received)
        first = None
        if passthrough is not None and passthrough is self.upstream.passthrough:
            passed = _Passthrough(self, known, received, passthrough)
            if (first := passed.call(message)) is not None:
                exchange = passed
        if first is None:
            first = exchange.call(message)
        decoded = None if first is None else decoded_tensors(opened, known)
        if first is None or decoded is None:
            return None
        request, _ = decoded
        places = places_of(message, request.inputs, exchange.decodes)
        if places is None or len(message) - sum([stop - start for start, stop in places]) > LONGEST:
            return None  # the plan would keep it
        repeats, splice, lead = Repeats(len(message), surroundings(message, places)), None, 0
        if not _is_whole(first, message):
            splice = self._splice(exchange, first, message, places)
            if splice is None:
                return None
        elif not any(tensor.datatype is Datatype.BYTES for tensor in request.inputs):
            lead = repeats.lead  # to decode another form of response needs the strings of the request
        if not exchange.decodes and exchange.call(_blank(message, repeats)) is None:
            return None
        replies = _Replies(exchange, opened.action, received.context, self.upstream)
        replies.forward = UpstreamForward(
            target,
            self.upstream,
            self.signatures,
            self.counts,
            known,
            "" if self.signatures.declared is not None else received.version,
            repeats,
            without_message(first),
            len(message) if splice is None else len(splice.of(message)),
            replies.read,
            batch_size(request, known.local),
            splice,
            exchange.decodes,
            opened.action.numbered,
            lead=lead,
        )
        return replies.forward

    def _splice(
        self, exchange: _Exchange, first: Any, message: Buffer, places: Sequence[Place]
    ) -> Splice | None:
        if len(message) > _LONGEST:
            return None
        shell = shell_of(first)

        def make(data: bytes) -> bytes | None:
            made = exchange.call(data)
            return whole_of(made) if made is not None and shell_of(made) == shell else None

        return find_splice(message, places, make)


def decoded_tensors(opened: Opened[Any], known: KnownSignature) -> tuple[InferRequest, Any] | None:
    """``opened`` decoded, and the form of its answer; None for one with more than tensors in memory. Raises
    as the codec."""
    if opened.action.decode is None:
        return None
    request, form = opened.action.decode(opened, known.local)
    return None if request.answers != "one" or repeated_form(request) is None else (request, form)


def _blank(message: Buffer, repeats: Repeats) -> memoryview:
    """``message`` with zeros as contents, which take no memory unless they are read."""
    blank = np.zeros(len(message), np.uint8).data
    for start, stop, segment in repeats.pieces:
        blank[start:stop] = segment
    return blank


def _is_whole(call: Any, message: Buffer) -> bool:
    """Whether the message of ``call`` is ``message``."""
    parts = call.parts if isinstance(call, HttpCall) else (*getattr(call, "parts", ()),)
    if not isinstance(call, HttpCall):
        parts = (call.message, *parts) if not isinstance(call, FramedCall) else parts
    return len(parts) == 1 and len(parts[0]) == len(message) and place_in(message, parts[0]) is not None


class _Answer(NamedTuple):
    """An ``answer``, by ``version``, to replies with this ``status`` and these ``headers``, None over gRPC,
    and how its message is made. A header with a pattern has any value that matches."""

    status: int
    headers: tuple[tuple[str, str | None, re.Pattern[str] | None], ...] | None
    splice: Splice
    answer: Any
    version: str


class _Replies:
    """Reads the replies of ``exchange`` for ``forward``, whose caller has an ``action``, and a ``context``
    like that of a request."""

    __slots__ = ("_action", "_context", "_exchange", "_messages", "_misses", "_upstream", "forward")

    forward: UpstreamForward

    def __init__(
        self, exchange: _Exchange, action: Action[Any], context: Context, upstream: Upstream
    ) -> None:
        self._exchange = exchange
        self._action = action
        self._context = context
        self._upstream = upstream
        self._messages: RepeatedMessages[_Answer] = RepeatedMessages()
        self._misses = 0

    def read(self, reply: Any) -> tuple[Any, str] | None:
        """The caller's response, without a number, and the version that ran; None if responses are unfit for
        ``forward``, or have to be decoded. Raises as the codecs."""
        message = reply.body if type(reply) is HttpReply else reply.message
        found = self._messages.find(message)
        if found is not None:
            known = found.facts
            status = reply.code if known.headers is None else reply.status
            for name, value, pattern in known.headers or ():
                given = reply.headers.get(name)
                if given != value and (pattern is None or not given or not pattern.fullmatch(given)):
                    status = -1
            if status == known.status:
                return answer_with(known.answer, known.splice.of(message)), known.version
        if self.forward.unfit:
            return None  # sent before that was known
        read = self._exchange.read(reply)
        if read is None:
            return None
        self._misses = misses = self._misses + 1
        if not misses & (misses - 1):  # seldom, if replies do not repeat
            if not self._is_fit(reply, read.response):
                self.forward.unfit = True
                return None
            if self._exchange.answer is not None:
                self.forward.read = self._exchange.answer  # it is never spliced
            learning = self._upstream.learning
            if read.outputs and learning.begin():
                try:
                    self._learn(reply)
                finally:
                    learning.end()
        return read.response, read.version

    def _is_fit(self, reply: Any, response: Any) -> bool:
        """Whether ``response``, to ``reply``, has the number of its request in the place for it alone."""
        context, numbered = self._context, self.forward.numbered
        context.request_number = 1
        other = self._exchange.read(reply)
        if numbered is not None:
            response = replace(response, headers=numbered(response.headers, context))
        context.request_number = 0
        if other is None:
            return False
        if type(getattr(response, "message", None)) is ArrivingMessage:
            return shell_of(response) == shell_of(other.response)
        whole = whole_of(response)
        return whole is not None and (whole, shell_of(response)) == (
            whole_of(other.response),
            shell_of(other.response),
        )

    def _header(self, name: str, value: str | None) -> tuple[str, str | None, re.Pattern[str] | None]:
        call = self._upstream.infer_call
        pattern = None if call is None else call.alike.get(name)
        return name, value, pattern if pattern and value and pattern.fullmatch(value) else None

    def _learn(self, reply: Any) -> None:
        """Find out how the response is made of a reply."""
        message, noted, status = message_of(reply), None, 0
        if isinstance(reply, HttpReply):
            noted, status = NotedHeaders(reply.headers), reply.status
            reply = HttpReply(status, noted, message)
        elif reply.code:
            return
        read = self._exchange.read(reply)
        places = None if read is None else places_of(message, read.outputs)
        if read is None or places is None:
            return
        shell = shell_of(read.response), read.version

        def make(data: bytes) -> bytes | None:
            try:
                made = self._exchange.read(reply_with(reply, data))
            except InferenceError:
                return None
            same = made is not None and (shell_of(made.response), made.version) == shell
            return whole_of(made.response) if made is not None and same else None

        splice = find_splice(message, places, make)
        if splice is not None:
            headers = None
            if noted is not None:
                headers = tuple([self._header(name, noted.given.get(name)) for name in noted.names])
            bare = answer_with(read.response, b"")
            contents = [memoryview(message)[start:stop] for start, stop in places]
            self._messages.remember(message, contents, _Answer(status, headers, splice, bare, read.version))


def places_of(message: Buffer, tensors: tuple[Tensor, ...], decodes: bool = True) -> list[Place] | None:
    """Where ``message`` has the contents of ``tensors``; None unless it has those of all as they are in
    memory, each once, and none that a codec checks if it ``decodes`` them."""
    places: list[Place] = []
    for tensor in tensors:
        place = None
        unread = not decodes or tensor.datatype not in _WITH_MEANING
        if unread and not isinstance(tensor.data, SharedMemoryRef):
            place = place_in(message, tensor.data)
        if place is None:
            return None
        places.append(place)
    return sorted(places) or None
