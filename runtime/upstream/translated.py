"""Requests that repeat all but the contents of their tensors, to an upstream of another dialect: translated
without a codec.

Contract: the codecs have translated a request with the same headers, names, datatypes and shapes, and
``protocols.splice`` has verified that they only move the contents. So it is with the replies; one that no
splice fits goes through its codecs, and one that these refuse, to the usual path of its request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from interlingua.protocols.dialect import Action, Opened, Repeats, UpstreamCall
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
from interlingua.protocols.wire import Buffer, HttpReply
from interlingua.runtime.models.statistics import batch_size
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.fast_path import UpstreamFastPath
from interlingua.runtime.upstream.names import UpstreamNames
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

_MOST = 64
"""How many kinds of requests have a path: callers choose their headers."""

_LONGEST = 1 << 17
"""The size in bytes of the longest message: the copies of a longer one cost more than its codecs."""

_MOST_ALIKE = 4
"""How many of them with the same headers."""

_WITH_MEANING = frozenset({Datatype.BYTES, Datatype.BOOL})
"""Datatypes whose contents a codec may check."""


class ReceivedMessage(NamedTuple):
    """A ``message`` of a caller, for ``model`` in ``version``. ``open`` opens one like it; ``key`` has what
    that reads besides the message. ``context`` is not that of a request."""

    message: Buffer
    open: Callable[[Buffer], Opened[Any]]
    key: Hashable
    model: str
    version: str
    context: Context


class _Translated(NamedTuple):
    """A request in the caller's names, the form of its answer, the call in the upstream's dialect, and the
    form of its reply."""

    request: InferRequest
    form: Any
    call: Any
    pending: Any


@dataclass(slots=True, eq=False)
class UpstreamTranslation:
    """Translates messages to and from the model ``remote`` of ``upstream``; if ``strict``, only those that
    fit the signature."""

    remote: str
    upstream: Upstream
    names: UpstreamNames
    signatures: UpstreamSignature
    counts: UpstreamCounts
    strict: bool

    def fast_path(self, target: object, received: ReceivedMessage) -> UpstreamFastPath | None:
        """How messages that repeat ``received`` are sent without a task; None if they are not. Raises as the
        codecs."""
        known, call = self.signatures.known(received.version), self.upstream.infer_call
        if known is None or call is None or not self.upstream.sends_at_once:
            return None
        if len(received.message) > _LONGEST:
            return None
        alike = known.translated.get(received.key, ())
        for path in alike:
            if path.repeats.fits(received.message):
                found: UpstreamFastPath | None = path
                break
        else:
            learning = self.upstream.learning
            if not learning.begin():
                return None
            try:
                found = self._found(target, received, known, call)
            finally:
                learning.end()
            if found is not None:
                if len(known.translated) >= _MOST:
                    known.translated.clear()
                known.translated[received.key] = (found, *alike[: _MOST_ALIKE - 1])
        return found

    def _found(
        self, target: object, received: ReceivedMessage, known: KnownSignature, call: UpstreamCall[Any, Any]
    ) -> UpstreamFastPath | None:
        message = received.message
        first = self._translated(message, received, known, call)
        places = None if first is None else _places(message, first.request.inputs)
        if first is None or places is None:
            return None
        if len(message) - sum([stop - start for start, stop in places]) > LONGEST:
            return None  # the path would keep it
        shell = shell_of(first.call)

        def make(data: bytes) -> bytes | None:
            made = self._translated(data, received, known, call)
            return whole_of(made.call) if made is not None and shell_of(made.call) == shell else None

        splice = find_splice(message, places, make)
        if splice is None:
            return None
        self.upstream.prepare(first.call, received.context)
        action = received.open(message).action
        request = replace(first.request, inputs=())  # which refer to the message
        kept = first._replace(request=request, call=without_message(first.call))
        replies = TranslatedReplies(self, known, call, kept, action)
        repeats = Repeats(len(message), surroundings(message, places))
        size = batch_size(first.request, known.local)
        replies.path = UpstreamFastPath(
            target,
            self.upstream,
            self.signatures,
            self.counts,
            known,
            received.version,
            repeats,
            kept.call,
            len(splice.of(message)),
            replies.read,
            size,
            splice,
            action.numbered,
        )
        return replies.path

    def _translated(
        self,
        message: Buffer,
        received: ReceivedMessage,
        known: KnownSignature,
        call: UpstreamCall[Any, Any],
    ) -> _Translated | None:
        """``message`` as its usual path translates it; None for one with more than tensors in memory."""
        opened = received.open(message)
        if opened.action.decode is None:
            return None
        request, form = opened.action.decode(opened, known.local)
        if request.answers != "one" or repeated_form(request) is None:
            return None
        request.model, request.context = received.model, received.context
        if self.strict:
            known.check.check(request)
        remote_request = self.names.to_upstream(request, self.remote)
        if call.unnamed:
            remote_request = in_signature_order(remote_request, known.remote)
        return _Translated(request, form, *call.encode(remote_request, known.remote))


class _Answer(NamedTuple):
    """An ``answer``, by ``version``, to replies with this ``status`` and these ``headers``, None over gRPC,
    and how its message is made. A header with a pattern has any value that matches."""

    status: int
    headers: tuple[tuple[str, str | None, re.Pattern[str] | None], ...] | None
    splice: Splice
    answer: Any
    version: str


class TranslatedReplies:
    """Reads the replies to messages that repeat ``first``, which ``action`` answers, for ``path``."""

    __slots__ = (
        "_action",
        "_call",
        "_first",
        "_known",
        "_learning",
        "_messages",
        "_misses",
        "_names",
        "path",
    )

    path: UpstreamFastPath

    def __init__(
        self,
        translation: UpstreamTranslation,
        known: KnownSignature,
        call: UpstreamCall[Any, Any],
        first: _Translated,
        action: Action[Any],
    ) -> None:
        self._names = translation.names
        self._learning = translation.upstream.learning
        self._known = known
        self._call = call
        self._first = first
        self._action = action
        self._messages: RepeatedMessages[_Answer] = RepeatedMessages()
        self._misses = 0

    def read(self, reply: Any) -> tuple[Any, str] | None:
        """The caller's answer, without a number, and the version that ran; None if answers are unfit for
        ``path``. Raises as the codecs."""
        message = message_of(reply)
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
        if self.path.unfit:
            return None  # sent before that was known
        answer, version, _ = self._translated(reply)
        self._misses = misses = self._misses + 1
        if not misses & (misses - 1):  # seldom, if replies do not repeat
            if not self._is_fit(reply, answer):
                self.path.unfit = True
                return None
            if self._learning.begin():
                try:
                    self._learn(reply)
                finally:
                    self._learning.end()
        return answer, version

    def _translated(self, reply: Any) -> tuple[Any, str, tuple[Tensor, ...]]:
        """The answer, the version, and the outputs of ``reply`` as its usual path translates it."""
        first, names = self._first, self._names
        response = self._call.decode(first.pending, reply)
        outputs = response.outputs
        response.outputs = names.chosen(names.answered(response), first.request.outputs, self._known.local)
        response.model, response.id = first.request.model, first.request.id
        return self._action.encode(first.form, response), response.version, outputs

    def _is_fit(self, reply: Any, answer: Any) -> bool:
        """Whether ``answer``, to ``reply``, has the number of its request in the place for it alone."""
        context, numbered = self._first.request.context, self._action.numbered
        context.request_number = 1
        other, _, _ = self._translated(reply)
        if numbered is not None:
            answer = replace(answer, headers=numbered(answer.headers, context))
        context.request_number = 0
        whole = whole_of(answer)
        return whole is not None and (whole, shell_of(answer)) == (whole_of(other), shell_of(other))

    def _header(self, name: str, value: str | None) -> tuple[str, str | None, re.Pattern[str] | None]:
        pattern = self._call.alike.get(name)
        return name, value, pattern if pattern and value and pattern.fullmatch(value) else None

    def _learn(self, reply: Any) -> None:
        """Find out how the answer is made of a reply."""
        message, read, status = message_of(reply), None, 0
        if isinstance(reply, HttpReply):
            read, status = _ReadHeaders(reply.headers), reply.status
            reply = HttpReply(status, read, message)
        elif reply.code:
            return
        answer, version, outputs = self._translated(reply)
        places = _places(message, outputs)
        if places is None:
            return
        shell = shell_of(answer), version

        def make(data: bytes) -> bytes | None:
            try:
                made, ran, _ = self._translated(reply_with(reply, data))
            except InferenceError:
                return None
            return whole_of(made) if (shell_of(made), ran) == shell else None

        splice = find_splice(message, places, make)
        if splice is not None:
            headers = None
            if read is not None:
                headers = tuple([self._header(name, read.given.get(name)) for name in read.names])
            bare = answer_with(answer, b"")
            contents = [memoryview(message)[start:stop] for start, stop in places]
            self._messages.remember(message, contents, _Answer(status, headers, splice, bare, version))


class _ReadHeaders(Mapping[str, str]):
    """Headers, ``given``, that note the ``names`` of those that are read."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.names: dict[str, None] = {}

    def __getitem__(self, name: str) -> str:
        self.names[name] = None
        return self.given[name]

    def __iter__(self) -> Iterator[str]:
        self.names.update(dict.fromkeys(self.given))
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)


def _places(message: Buffer, tensors: tuple[Tensor, ...]) -> list[Place] | None:
    """Where ``message`` has the contents of ``tensors``; None unless it has those of all as they are in
    memory, each once."""
    places: list[Place] = []
    for tensor in tensors:
        place = None
        if tensor.datatype not in _WITH_MEANING and not isinstance(tensor.data, SharedMemoryRef):
            place = place_in(message, tensor.data)
        if place is None:
            return None
        places.append(place)
    return sorted(places) or None
