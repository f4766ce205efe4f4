"""What the kit needs to know about a dialect on one transport, beyond the dialect's own calls.

A ``Wire`` checks replies as received: the codecs of this program accept more forms than the protocols allow,
to work with every server."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interlingua.protocols.classification import Ranked
from interlingua.protocols.dialect import UpstreamCall
from interlingua.schemas import InferRequest, InferResponse, Operation
from interlingua.translator.conformance.check import Check
from interlingua.translator.conformance.exchange import WireExchange

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class Mistake(enum.Enum):
    """The mistake in a request that must be refused."""

    UNKNOWN_MODEL = "an unknown model"
    UNKNOWN_VERSION = "an unknown version"
    INVALID = "a request that contradicts itself or the model"
    MALFORMED = "bytes that are not a message"
    ANY = "a request that fails, for any reason"


@dataclass(frozen=True, slots=True)
class Ranking:
    """An answer to a request for classes: ``classes`` by output, a list for each entry of the batch;
    ``response`` has the other outputs."""

    classes: Mapping[str, Sequence[Sequence[Ranked]]]
    response: InferResponse


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of answers. ``call`` opens one; its ``decode`` returns the responses that a chunk of the reply
    completes, refusals with their ``error``. ``unwrap`` converts a chunk to a unary reply, which the wire
    checks. With ``many`` a stream carries any number of requests, answered in order; otherwise one.
    ``known``: whether a chunk has the protocol's form; some servers stream in another."""

    call: UpstreamCall[Any, Any]
    unwrap: Callable[[Any], Any] = lambda piece: piece
    many: bool = False
    known: Callable[[Any], bool] = lambda piece: True


@dataclass(frozen=True, slots=True)
class Wire:
    """One dialect on one transport, for the kit.

    ``succeeded(exchange)``: whether the reply reports success. ``check_error(exchange, mistake)`` and
    ``check_answer(request, exchange)`` raise unless a refusal or an answer has the dialect's form. ``calls``
    are the forms of a request by name, the usual one first. ``extensions`` maps the name of an optional
    feature to the extension in the server's metadata; forms in ``textual`` carry neither NaN nor bytes that
    are not text. ``checks`` are rules of this wire alone, ``exempt`` the names of rules that do not apply,
    with reasons. ``ids`` generates usual ids, ``any_ids`` all valid ones; None if the dialect has none. The
    last ``padding`` bytes of a message may be insignificant. ``list_models`` lists models if the dialect has
    no operation for it.

    Optional features: ``classes`` are the forms of requests for classes, by the names of ``calls``, with a
    ``Ranking`` as result. ``memory`` has the calls that control shared memory regions. ``streams`` opens and
    reads streams. The first two may be in ``extensions``."""

    succeeded: Callable[[WireExchange], bool]
    check_error: Callable[[WireExchange, Mistake], None]
    check_answer: Callable[[InferRequest, WireExchange], None]
    calls: Mapping[str, UpstreamCall[Any, Any]]
    checks: tuple[Check, ...] = ()
    extensions: Mapping[str, str] = field(default_factory=dict)
    textual: frozenset[str] = frozenset()
    exempt: Mapping[str, str] = field(default_factory=dict)
    ids: SearchStrategy[str] | None = None
    any_ids: SearchStrategy[str] | None = None
    padding: int = 0
    list_models: Callable[[Any], tuple[str, ...]] | None = None
    classes: Mapping[str, UpstreamCall[Any, Any]] = field(default_factory=dict)
    memory: Mapping[Operation, UpstreamCall[Any, Any]] = field(default_factory=dict)
    streams: Streams | None = None
