"""What the kit must know of a dialect on one transport, beyond the dialect's own calls.

A ``Wire`` judges replies as they stand on the wire: the codecs of this program read more forms than the
protocols allow, since they are made to get along with every server.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interlingua.protocols.classification import Ranked
from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpReply, HttpRequest
from interlingua.schemas import InferRequest, InferResponse, Operation
from interlingua.translator.conformance.check import Check, ViolationError
from interlingua.translator.conformance.exchange import Exchange, Sent

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from interlingua.translator.conformance.subject import Subject


class Mistake(enum.Enum):
    """What is wrong with a request that must be refused."""

    UNKNOWN_MODEL = "an unknown model"
    UNKNOWN_VERSION = "an unknown version"
    INVALID = "a request that contradicts itself or the model"
    MALFORMED = "bytes that are no message"
    ANY = "a request that cannot be carried out, whoever is to blame"


@dataclass(frozen=True, slots=True)
class Ranking:
    """An answer to a request for classes: ``classes`` by output, a list for each entry of the batch;
    ``response`` has the other outputs."""

    classes: Mapping[str, Sequence[Sequence[Ranked]]]
    response: InferResponse


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of answers. ``call`` opens one; its ``decode`` gives the responses that a piece of the reply
    completes, each with its ``error`` where it is a refusal. ``unwrap`` makes of such a piece what the answer
    to a request of its own would be, for the wire to judge. With ``many`` a stream carries any number of
    requests, whose answers come in their order; else it is that of one request. ``known`` says whether a
    piece has the form that the protocol gives it, where servers are known that stream in another."""

    call: UpstreamCall[Any, Any]
    unwrap: Callable[[Any], Any] = lambda piece: piece
    many: bool = False
    known: Callable[[Any], bool] = lambda piece: True


@dataclass(frozen=True, slots=True)
class Wire:
    """How one dialect looks on one transport.

    ``succeeded(exchange)``: whether the reply says that the request was carried out.
    ``check_error(exchange, mistake)`` and ``check_answer(request, exchange)`` raise where the form of a
    refusal or of an answer is not the dialect's. ``calls`` are the forms in which a request can be sent, by
    name, the usual one first; a name in ``extensions`` is there only where the server's metadata list what it
    maps to; those in ``textual`` have neither NaN nor bytes that are no text. ``checks`` are the rules of
    this wire alone, ``exempt`` the names of others that say nothing of it, each with the reason. ``ids``
    gives ids as clients make them, ``any_ids`` all that there are; None where the dialect has none.
    ``padding`` bytes at the end of a message may mean nothing. ``list_models`` is there where the dialect's
    own calls do not ask for the models that there are.

    What not every dialect has: ``classes`` are the forms in which classes can be asked for, by the names of
    ``calls``; the result of such a call is a ``Ranking``. ``memory`` are the calls that control regions of
    shared memory. ``streams`` is how streams are opened and read. The first two may be in ``extensions``.
    """

    succeeded: Callable[[Exchange], bool]
    check_error: Callable[[Exchange, Mistake], None]
    check_answer: Callable[[InferRequest, Exchange], None]
    calls: Mapping[str, UpstreamCall[Any, Any]]
    checks: tuple[Check, ...] = ()
    extensions: Mapping[str, str] = field(default_factory=dict)
    textual: frozenset[str] = frozenset()
    exempt: Mapping[str, str] = field(default_factory=dict)
    ids: SearchStrategy[str] | None = None
    any_ids: SearchStrategy[str] | None = None
    padding: int = 0
    list_models: Callable[[Subject], tuple[str, ...]] | None = None
    classes: Mapping[str, UpstreamCall[Any, Any]] = field(default_factory=dict)
    memory: Mapping[Operation, UpstreamCall[Any, Any]] = field(default_factory=dict)
    streams: Streams | None = None


def expect(holds: object, message: str, exchange: Exchange | None = None) -> None:
    """Raise ``ViolationError`` unless ``holds``."""
    if not holds:
        raise ViolationError(message, exchange)


def http_reply(exchange: Exchange | None) -> HttpReply:
    """What came back over HTTP. Raises ``ViolationError`` where nothing did."""
    if exchange is None or not isinstance(exchange.reply, HttpReply):
        raise ViolationError("no answer", exchange)
    return exchange.reply


def grpc_reply(exchange: Exchange) -> GrpcAnswer:
    """What came back over gRPC. Raises ``ViolationError`` where nothing did."""
    if not isinstance(exchange.reply, GrpcAnswer):
        raise ViolationError("no answer", exchange)
    return exchange.reply


def http_request(sent: Sent) -> HttpRequest:
    """A message of an HTTP wire as what it is."""
    if not isinstance(sent, HttpRequest):
        raise TypeError("not sent over HTTP")
    return sent


def grpc_request(sent: Sent) -> GrpcRequest:
    """A message of a gRPC wire as what it is."""
    if not isinstance(sent, GrpcRequest):
        raise TypeError("not sent over gRPC")
    return sent
