"""How callers get the replies to planned messages: by a splice of a reply like others, by the code that the
pipeline has for it where no splice fits, or by the pipeline, if that code refuses it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from interlingua.protocols.noted_headers import NotedHeaders, names_of
from interlingua.protocols.splice import Splice, find_id, find_splice
from interlingua.protocols.templates import MessageTemplate, contents_in, template_of
from interlingua.protocols.whole_message import (
    answer_with,
    is_whole,
    message_of,
    reply_with,
    shell_of,
    whole_of,
)
from interlingua.protocols.wire import ArrivingMessage, HttpAnswer, HttpReply
from interlingua.runtime.upstream.exchanges import Read, UpstreamExchange
from interlingua.runtime.upstream.forward import UpstreamForward
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context, InferenceError

_MOST_SIZES = 32
_MOST_ALIKE = 4
"""How many templates of one size."""


class _ReplyTemplate(NamedTuple):
    """Replies with this ``status`` and these ``headers``, None over gRPC, whose messages fit ``message``;
    if that has an id, the request has the same one. The caller gets a ``response`` of ``version`` with the
    message of the reply, or with its ``splice``, which has the id too. A header with a pattern has any value
    that matches."""

    message: MessageTemplate
    status: int
    headers: tuple[tuple[str, str | None, re.Pattern[str] | None], ...] | None
    splice: Splice | None
    response: Any
    version: str


class Replies:
    """Reads the replies of ``exchange`` for ``forward``, whose caller has a ``context`` like that of a
    request."""

    __slots__ = ("_context", "_exchange", "_identity", "_misses", "_names", "_sizes", "_upstream", "forward")

    forward: UpstreamForward

    def __init__(self, exchange: UpstreamExchange, context: Context, upstream: Upstream) -> None:
        self._exchange = exchange
        self._context = context
        self._names = len(names_of(context.headers))
        self._upstream = upstream
        self._sizes: dict[int, list[_ReplyTemplate]] = {}
        self._identity: bytes | None = None  # of the request that the exchange knows
        self._misses = 0

    def read(self, reply: Any, identity: bytes = b"") -> tuple[Any, str] | None:
        """The caller's response, without a number, to ``reply`` to the request with this id, and the version
        that ran; None if responses are unfit for ``forward``, or have to be decoded. Raises as the codecs."""
        message = reply.body if type(reply) is HttpReply else reply.message
        for known in self._sizes.get(len(message), ()):
            template = known.message
            for start, stop, segment in template.segments:
                if bytes(message[start:stop]) != segment:
                    break
            else:
                status = reply.code if known.headers is None else reply.status
                for name, value, pattern in known.headers or ():
                    given = reply.headers.get(name)
                    if given != value and (pattern is None or not given or not pattern.fullmatch(given)):
                        status = -1
                if status == known.status and (template.id is None or template.id_in(message) == identity):
                    splice = known.splice
                    if splice is not None:
                        message = splice.of(bytes(message) + identity if identity else message)
                    response = known.response
                    if type(response) is HttpAnswer:  # answer_with, inlined
                        return HttpAnswer(response.status, response.headers, (message,)), known.version
                    return answer_with(response, message), known.version
        forward = self.forward
        if forward.unfit or type(message) is ArrivingMessage:
            return None  # sent before that was known, or recognized as a whole
        read = self._read(reply, identity)
        if read is None:
            return None
        self._misses = misses = self._misses + 1
        if not misses & (misses - 1):  # seldom, if replies do not repeat
            if not self._is_fit(reply, read.response, identity):
                forward.unfit = True
                return None
            learning = self._upstream.learning
            if learning.begin():
                try:
                    with suppress(InferenceError):  # what the codec refuses has no template
                        self._learn(reply, identity)
                finally:
                    learning.end()
        return read.response, read.version

    def _read(self, reply: Any, identity: bytes) -> Read | None:
        if identity != self._identity and self.forward.template.id is not None:
            self._exchange.call(self.forward.template.example(identity))
        self._identity = identity
        return self._exchange.read(reply)

    def _is_fit(self, reply: Any, response: Any, identity: bytes) -> bool:
        """Whether ``response``, to ``reply``, has the number of its request in the place for it alone, and
        depends on no other headers than its request."""
        context, numbered = self._context, self.forward.numbered
        context.request_number = 1
        other = self._read(reply, identity)
        if numbered is not None:
            response = replace(response, headers=numbered(response.headers, context))
        context.request_number = 0
        if other is None or len(names_of(context.headers)) > self._names:
            return False
        whole = whole_of(response)
        return whole is not None and (whole, shell_of(response)) == (
            whole_of(other.response),
            shell_of(other.response),
        )

    def _header(self, name: str, value: str | None) -> tuple[str, str | None, re.Pattern[str] | None]:
        infer = self._upstream.infer_call
        pattern = None if infer is None else infer.alike.get(name)
        return name, value, pattern if pattern and value and pattern.fullmatch(value) else None

    def _learn(self, reply: Any, identity: bytes) -> None:
        """Find out how the response to requests like the one with this id is made of a reply."""
        message, noted, status = message_of(reply), None, 0
        example = self.forward.template.example(identity)
        decoded = self._exchange.decoded(example, reply)
        if isinstance(reply, HttpReply):
            noted, status = NotedHeaders(reply.headers), reply.status
            reply = HttpReply(status, noted, message)
        elif reply.code:
            return
        read = self._read(reply, identity)
        if read is None or decoded is None:
            return
        outputs, repeated = decoded
        slots = contents_in(message, outputs, self._exchange.decodes)
        if slots is None:
            return
        slots.sort()
        echo, ids = None, []
        if identity:
            ids.append((len(message), len(message) + len(identity)))
            if repeated == identity.decode():

                def id_of(data: bytes) -> str:
                    found = self._exchange.decoded(example, reply_with(reply, data))
                    return "" if found is None else found[1]

                echo = find_id(message, slots, repeated, id_of)
                if echo is None:
                    return
                ids.append(echo)
        shell = shell_of(read.response), read.version

        def make(data: bytes) -> bytes | None:
            body, own = data[: len(message)], data[len(message) :]
            try:
                made = self._read(reply_with(reply, body), own)
            except InferenceError:
                return None
            same = made is not None and (shell_of(made.response), made.version) == shell
            return whole_of(made.response) if made is not None and same else None

        template, splice = template_of(message, slots, echo), None
        passed = template.example(identity)
        other = self._read(reply_with(reply, passed), identity)
        if other is None or not is_whole(other.response, passed) or shell_of(other.response) != shell[0]:
            splice = find_splice(bytes(message) + identity, slots, make, ids)
            if splice is None:
                return
        headers = None
        if noted is not None:
            headers = tuple([self._header(name, noted.given.get(name)) for name in noted.names])
        bare = answer_with(read.response, b"")
        self._add(_ReplyTemplate(template, status, headers, splice, bare, read.version))

    def _add(self, made: _ReplyTemplate) -> None:
        alike = self._sizes.pop(made.message.size, [])
        if len(self._sizes) >= _MOST_SIZES:
            del self._sizes[next(iter(self._sizes))]
        self._sizes[made.message.size] = [made, *alike[: _MOST_ALIKE - 1]]
