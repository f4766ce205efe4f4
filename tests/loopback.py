"""A server of ours without a socket: its pipeline, and clients that hand their requests to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedCall,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpCall,
    HttpReply,
    HttpRequest,
    parts_of,
)
from interlingua.runtime.repository.files import ModelSource, load_models
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ServerMetadata, Signature
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router


def echoing(signatures: Mapping[str, Signature]) -> dict[str, Target]:
    """Models by name that answer with their inputs."""
    sources = [
        ModelSource(name, None, backend="identity", signature=signature)
        for name, signature in signatures.items()
    ]
    loaded = load_models(sources)
    assert not loaded.failed, loaded.failed
    return dict(loaded.models)


def serving(
    models: Mapping[str, Target], *dialects: str, transport: str = "", default_model: str = ""
) -> Pipeline:
    """The pipeline of a listener on ``models``, over every transport of the dialects or over ``transport``."""
    service = Service(Router(models), ServerMetadata("interlingua", "0"))
    bindings = [binding for name in dialects for binding in DIALECTS[name].bindings.values()]
    chosen = [binding for binding in bindings if transport in ("", binding.transport)]
    return Pipeline(service, "loopback", chosen, default_model)


class HttpLoopback:
    """An ``HttpClient`` of a pipeline. ``asked`` are the paths that were requested."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._http = pipeline.handlers["http"]
        self.asked: list[str] = []

    async def send(self, request: HttpCall) -> HttpReply:
        self.asked.append(request.path)
        headers = {name.lower(): value for name, value in request.headers.items()}
        arrived = HttpRequest(request.method, request.path, request.query, headers, b"".join(request.parts))
        answer = self._http.head(arrived) or await self._http.serve(arrived)
        told = {name.lower(): value for name, value in answer.headers}
        return HttpReply(answer.status, told, b"".join(parts_of(answer)))

    async def close(self) -> None:
        """Nothing is open."""


class GrpcLoopback:
    """A ``GrpcClient`` of a pipeline. ``asked`` are the methods that were called."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._grpc = pipeline.handlers["grpc"]
        self.asked: list[str] = []

    async def send(self, request: GrpcRequest) -> GrpcAnswer:
        self.asked.append(request.method)
        if self._grpc.offers(request.method) is None:
            return GrpcAnswer(code=12, details="Method not found!")
        return await self._grpc.serve(GrpcRequest(request.method, bytes(request.message)))

    async def close(self) -> None:
        """Nothing is open."""


class BrpcLoopback:
    """A ``BrpcClient`` of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._brpc = pipeline.handlers["brpc"]

    async def send(self, request: BrpcRequest) -> BrpcAnswer:
        return await self._brpc.serve(replace(request, message=bytes(request.message)))

    async def close(self) -> None:
        """Nothing is open."""


class FramedLoopback:
    """A ``FramedClient`` of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._framed = pipeline.handlers["tcp"]

    async def send(self, call: FramedCall) -> FramedReply:
        assert self._framed is not None
        message = b"".join(map(bytes, call.parts))[4:]
        answer = await self._framed.serve(FramedRequest(message, call.context))
        return FramedReply(b"".join(map(bytes, answer.parts))[4:])

    async def close(self) -> None:
        """Nothing is open."""


LOOPBACKS = {"http": HttpLoopback, "grpc": GrpcLoopback, "brpc": BrpcLoopback, "tcp": FramedLoopback}


def behind(pipeline: Pipeline, dialect: str, transport: str, model: str, **options: object) -> UpstreamModel:
    """``model`` of ``pipeline`` as a model of an upstream; the pipeline's default model where the transport has
    one model."""
    binding = DIALECTS[dialect].bindings[transport]
    upstream = Upstream("there", binding.calls, [LOOPBACKS[transport](pipeline)], 5.0)
    can = binding.capability
    remote = model if can.many_models else ""
    return UpstreamModel(model, upstream, remote, widened=can.widened, **options)  # type: ignore[arg-type]
