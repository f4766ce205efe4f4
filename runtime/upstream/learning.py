"""How an upstream gets messages like one that the pipeline has sent to it.

Contract: what the pipeline makes of a message is verified by ``protocols.splice`` to be a splice of it,
whether it passes through or is decoded. So it is with the replies (``replies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlingua.protocols.splice import Splice, find_id, find_splice
from interlingua.protocols.templates import MessageTemplate, contents_in, template_of
from interlingua.protocols.whole_message import is_whole, shell_of, whole_of, without_message
from interlingua.protocols.wire import Buffer
from interlingua.runtime.models.statistics import batch_size
from interlingua.runtime.upstream.exchanges import (
    DecodedExchange,
    PassedExchange,
    UpstreamExchange,
    decoded_tensors,
)
from interlingua.runtime.upstream.forward import ReceivedMessage, UpstreamForward
from interlingua.runtime.upstream.passing import UpstreamPassing
from interlingua.runtime.upstream.replies import Replies
from interlingua.runtime.upstream.signature import KnownSignature
from interlingua.schemas import Datatype

_LONGEST = 1 << 17
"""The size in bytes of the longest message that is spliced: the copies of a longer one cost more than its
codecs."""


@dataclass(slots=True, eq=False)
class UpstreamLearning:
    """Learns from messages to ``model``."""

    model: UpstreamPassing

    def forward(self, target: object, received: ReceivedMessage) -> UpstreamForward | None:
        """How messages like ``received`` are sent to ``target`` without a task; None if they are not. Raises
        as the codecs."""
        upstream, known = self.model.upstream, self.model.signatures.known(received.version)
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
        message, opened, model = received.message, received.open(received.message), self.model
        passthrough = opened.action.passthrough
        exchange: UpstreamExchange = DecodedExchange(model, known, received)
        first = None
        if passthrough is not None and passthrough is model.upstream.passthrough:
            passed = PassedExchange(model, known, received, passthrough)
            if (first := passed.call(message)) is not None:
                exchange = passed
        if first is None:
            first = exchange.call(message)
        decoded = None if first is None else decoded_tensors(opened, known)
        if first is None or decoded is None:
            return None
        request, _ = decoded
        slots = contents_in(message, request.inputs, exchange.decodes)
        if slots is None:
            return None
        slots.sort()
        id_slot = None
        if request.id:

            def id_of(data: bytes) -> str:
                found = decoded_tensors(received.open(data), known)
                return "" if found is None else found[0].id

            id_slot = find_id(message, slots, request.id, id_of)
            if id_slot is None:
                return None
        template = template_of(message, slots, id_slot)
        splice, lead = None, 0
        if not is_whole(first, message):
            splice = _splice(exchange, first, message, slots, template)
            if splice is None:
                return None
        elif not any(tensor.datatype is Datatype.BYTES for tensor in request.inputs):
            lead = template.lead  # to decode another form of response needs the strings of the request
        if not exchange.decodes and exchange.call(template.example(template.id_in(message))) is None:
            return None
        replies = Replies(exchange, received.context, model.upstream)
        replies.forward = UpstreamForward(
            target,
            model.upstream,
            model.signatures,
            model.counts,
            known,
            "" if model.signatures.declared is not None else received.version,
            template,
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
    exchange: UpstreamExchange,
    first: Any,
    message: Buffer,
    slots: list[tuple[int, int]],
    template: MessageTemplate,
) -> Splice | None:
    """How a call like ``first`` gets its message from one of ``template``, such as ``message``."""
    if len(message) > _LONGEST:
        return None
    shell = shell_of(first)

    def make(data: bytes) -> bytes | None:
        made = exchange.call(data)
        return whole_of(made) if made is not None and shell_of(made) == shell else None

    found = find_splice(message, slots, make, () if template.id is None else (template.id,))
    if found is None or template.id is None:
        return found
    start, stop = template.id
    # the pipeline counts an id that the upstream does not get
    return found if any(start <= begin < stop for _, begin, _ in found.pieces) else None
