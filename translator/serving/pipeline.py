"""The handlers of a listener: a transport calls one with a request and gets an answer, never an exception."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from interlingua.protocols.dialect import Binding
from interlingua.protocols.transport.load import ListenerLoad, RefusedRequest
from interlingua.schemas import Context
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.clients import Clients
from interlingua.translator.serving.access_log import RequestOutcome, Size
from interlingua.translator.serving.cors import CorsHandler, CorsPolicy
from interlingua.translator.serving.handler import BrpcPipeline, FramedPipeline, Handling, Metrics
from interlingua.translator.serving.handler_grpc import GrpcPipeline
from interlingua.translator.serving.handler_http import HttpPipeline
from interlingua.translator.serving.header_parameters import HeaderParameters
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.request_metrics import RequestMetrics

_HANDLERS = {
    "http": HttpPipeline,
    "grpc": GrpcPipeline,
    "brpc": BrpcPipeline,
    "brpc/http": HttpPipeline,
    "brpc/grpc": GrpcPipeline,
    "tcp": FramedPipeline,
}


class Pipeline:
    """Answers the requests of one listener from ``service``.

    ``handlers`` has the handler of each transport, as ``protocols.transport.servers`` expects them, with
    ``brpc/http`` and ``brpc/grpc`` for the bindings that bRPC multiplexes on its port. ``request_metrics``
    count requests by dialect, with ``by_transport`` by the names of ``bindings``, of which there are several
    for a dialect, and, with ``timed``, their durations; ``load`` is what the listener carries; ``clients``
    counts those of clients with an identity; ``cors`` is for pages of other origins;
    ``serves_peers``: peers may forward requests to it.
    """

    def __init__(
        self,
        service: Service,
        listener: str,
        bindings: Sequence[Binding],
        default_model: str = "",
        max_request_bytes: int | None = None,
        timed: bool = False,
        header_parameters: HeaderParameters | None = None,
        authorization: Authorization | None = None,
        load: ListenerLoad | None = None,
        limits: DecodingLimits = DEFAULT_LIMITS,
        by_transport: bool = False,
        clients: Clients | None = None,
        cors: CorsPolicy | None = None,
        max_response_bytes: int | None = None,
        serves_peers: bool = False,
    ) -> None:
        self.service = service
        self.authorization = authorization or Authorization(listener)
        self.load = ListenerLoad(listener) if load is None else load
        self.request_metrics: Metrics = {
            binding.name if by_transport else binding.dialect: RequestMetrics(
                timed, self.load, binding.dialect
            )
            for binding in bindings
        }
        self.load.record = self._record
        self._processor = processor = RequestProcessor(
            service,
            listener,
            default_model,
            header_parameters,
            self.authorization,
            limits,
            Clients() if clients is None else clients,
            serves_peers,
        )
        over: defaultdict[str, list[Binding]] = defaultdict(list)
        for binding in bindings:
            over[binding.transport].append(binding)
            for transport, multiplexed in binding.multiplexed.items():
                over[f"{binding.transport}/{transport}"].append(multiplexed)
        self.handlers: Mapping[str, Any] = {}
        for place, handler in _HANDLERS.items():
            metrics = {
                binding.dialect: self.request_metrics[binding.name if by_transport else binding.dialect]
                for binding in over[place]
            }
            made: Any = handler(
                Handling(processor, metrics, max_request_bytes, max_response_bytes), over[place]
            )
            if cors is not None and handler is HttpPipeline:
                made = CorsHandler(made, cors)
            self.handlers[place] = made

    def follow(self, successor: Pipeline) -> None:
        """Answer as ``successor`` would from the next request on, on the same connections. Both have the same
        bindings."""
        self.authorization = successor.authorization
        self._processor.follow(successor._processor)
        for handler in (self.handlers["grpc"], self.handlers["brpc/grpc"]):
            handler.follow()
        self.load.limit_as(successor.load)

    def _record(self, refused: RefusedRequest) -> None:
        """Add a request that the transport has refused to the access log."""
        place = {"listener": self.load.listener, "transport": refused.transport}
        error, context = refused.error, Context(peer=refused.peer)
        outcome = RequestOutcome(refused.status, error.code, error.message)
        self.service.access.add(place, refused.name, context, outcome, Size(refused.size, 0))
