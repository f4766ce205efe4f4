"""What the pipeline does with a message of a caller and with the reply to it: for plans, which learn from it
what becomes of messages like that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from interlingua.protocols.dialect import Action, Opened, Passthrough, UpstreamCall
from interlingua.protocols.templates import has_tensors_alone
from interlingua.protocols.wire import Buffer
from interlingua.runtime.upstream.forward import ReceivedMessage
from interlingua.runtime.upstream.passing import UpstreamPassing
from interlingua.runtime.upstream.signature import KnownSignature
from interlingua.runtime.upstream.unnamed import in_signature_order
from interlingua.schemas import InferRequest, Tensor


class Read(NamedTuple):
    """The caller's response to a reply, and the version that ran."""

    response: Any
    version: str


class UpstreamExchange(Protocol):
    """What the pipeline does with a message, and with the replies to it. All raise as the codecs."""

    decodes: bool

    def call(self, data: Buffer) -> Any:
        """The call for ``data``; None if the pipeline does something else with it."""

    def read(self, reply: Any) -> Read | None:
        """The response to ``reply`` to the last call; None if the pipeline has to read it."""

    def decoded(self, data: Buffer, reply: Any) -> tuple[tuple[Tensor, ...], str] | None:
        """The outputs in ``reply`` to the call for ``data``, and the id that it repeats."""


class DecodedExchange:
    """A message is decoded for the upstream, and replies for the caller."""

    decodes = True

    def __init__(self, model: UpstreamPassing, known: KnownSignature, received: ReceivedMessage) -> None:
        self._model = model
        self._known = known
        self._received = received._replace(message=b"")
        self._infer: UpstreamCall[Any, Any] | None = model.upstream.infer_call
        self._last: tuple[InferRequest, Action[Any], Any, Any] | None = None

    def call(self, data: Buffer) -> Any:
        """See ``UpstreamExchange``."""
        received, model, known, infer = self._received, self._model, self._known, self._infer
        opened = received.open(data)
        if infer is None or (decoded := decoded_tensors(opened, known)) is None:
            return None
        request, form = decoded
        request.model, request.context = received.model, received.context
        if model.strict:
            known.check.check(request)
        remote = model.names.to_upstream(request, model.remote)
        if infer.unnamed:
            remote = in_signature_order(remote, known.remote)
        made, pending = infer.encode(remote, known.remote)
        # without its inputs, which refer to the message
        self._last = replace(request, inputs=()), opened.action, form, pending
        return made

    def read(self, reply: Any) -> Read | None:
        """See ``UpstreamExchange``."""
        if self._last is None or self._infer is None:
            return None
        request, action, form, pending = self._last
        response = self._infer.decode(pending, reply)
        names = self._model.names
        response.outputs = names.chosen(names.answered(response), request.outputs, self._known.local)
        response.model, response.id = request.model, request.id
        return Read(action.encode(form, response), response.version)

    def decoded(self, data: Buffer, reply: Any) -> tuple[tuple[Tensor, ...], str] | None:
        """See ``UpstreamExchange``."""
        self.call(data)
        if self._last is None or self._infer is None:
            return None
        response = self._infer.decode(self._last[-1], reply)
        return response.outputs, response.id


class PassedExchange:
    """A message passes through, and so do replies."""

    decodes = False

    def __init__(
        self,
        model: UpstreamPassing,
        known: KnownSignature,
        received: ReceivedMessage,
        passthrough: Passthrough[Any, Any, Any],
    ) -> None:
        self._model = model
        self._known = known
        self._received = received._replace(message=b"")
        self._passthrough = passthrough
        self._infer: UpstreamCall[Any, Any] | None = model.upstream.infer_call
        self._other = DecodedExchange(model, known, received)
        self._last: tuple[Callable[[Any], Any], Any] | None = None  # how replies to the last call are read

    def call(self, data: Buffer) -> Any:
        """See ``UpstreamExchange``."""
        received, known, pending, infer = self._received, self._known, None, self._infer
        opened = received.open(data)
        place = received.model, received.version
        prepared = self._model.prepared(self._passthrough, opened, known, *place)
        if prepared is None or infer is None:
            return None
        made = prepared.message
        if isinstance(made, InferRequest):
            made, pending = infer.encode(made, known.remote)
        kept = self._passthrough.without_contents(opened)
        self._last = partial(self._passthrough.answer, kept, prepared.names), pending
        return made

    def read(self, reply: Any) -> Read | None:
        """See ``UpstreamExchange``."""
        if self._last is None or self._infer is None:
            return None
        answer, pending = self._last
        found = answer(reply if pending is None else self._infer.decode(pending, reply))
        return Read(*found) if type(found) is tuple else None

    def decoded(self, data: Buffer, reply: Any) -> tuple[tuple[Tensor, ...], str] | None:
        """See ``UpstreamExchange``."""
        return self._other.decoded(data, reply)


def decoded_tensors(opened: Opened[Any], known: KnownSignature) -> tuple[InferRequest, Any] | None:
    """``opened`` decoded, and the form of its answer; None for one with more than tensors in memory, and an
    id. Raises as the codec."""
    if opened.action.decode is None:
        return None
    request, form = opened.action.decode(opened, known.local)
    return (request, form) if request.answers == "one" and has_tensors_alone(request) else None
