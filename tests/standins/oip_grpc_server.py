"""An Open Inference Protocol server on grpcio and the stubs that tritonclient ships."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import triton_to_np_dtype


@dataclass
class Seen:
    """Every request for an inference, as tritonclient's classes read it. ``metadata`` are those of every call,
    under its method."""

    requests: list[Any] = field(default_factory=list)
    metadata: list[tuple[str, dict[str, str]]] = field(default_factory=list)


class OipServer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Serves ``simple`` (INT32 sum and difference) and ``identity_<datatype>``; with ``typed`` it
    answers in typed contents, as KServe does, where the datatype has them."""

    def __init__(self, seen: Seen, typed: bool = False) -> None:
        self._seen = seen
        self._typed = typed

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=True)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ModelReadyResponse(ready=known(request.name))

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerMetadataResponse(name="standin", version="1", extensions=["parameters"])

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        if not known(request.name):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name}")
        inputs, outputs, datatype, shape = shape_of(request.name)
        answer = service_pb2.ModelMetadataResponse(name=request.name, versions=["1"], platform="standin")
        for side, names in ((answer.inputs, inputs), (answer.outputs, outputs)):
            for name in names:
                side.add(name=name, datatype=datatype, shape=shape)
        return answer

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        """Of ``simple`` alone: other servers than Triton have no such call."""
        if request.name != "simple":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no configuration")
        answer = service_pb2.ModelConfigResponse()
        answer.config.name, answer.config.max_batch_size = "simple", 8
        for name in ("INPUT0", "INPUT1"):
            answer.config.input.add(name=name, data_type="TYPE_INT32", dims=[16])
        return answer

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        self._seen.requests.append(request)
        if not known(request.model_name):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.model_name}")
        _, names, _, _ = shape_of(request.model_name)
        answer = service_pb2.ModelInferResponse(
            model_name=request.model_name, model_version="1", id=request.id
        )
        raws = list(request.raw_input_contents)
        if request.model_name == "simple":
            one, two = (np.frombuffer(raw, np.int32) for raw in raws)
            raws = [(one + two).tobytes(), (one - two).tobytes()]
        for name, raw in zip(names, raws, strict=True):
            given = request.inputs[0]
            output = answer.outputs.add(name=name, datatype=given.datatype, shape=given.shape)
            if self._typed and given.datatype == "FP32":
                output.contents.fp32_contents.extend(np.frombuffer(raw, np.float32).tolist())
            elif self._typed and given.datatype == "INT32":
                output.contents.int_contents.extend(np.frombuffer(raw, np.int32).tolist())
            else:
                answer.raw_output_contents.append(raw)
        return answer


def known(model: str) -> bool:
    return model == "simple" or model.startswith("identity_")


def shape_of(model: str) -> tuple[list[str], list[str], str, list[int]]:
    if model == "simple":
        return ["INPUT0", "INPUT1"], ["OUTPUT0", "OUTPUT1"], "INT32", [-1, 16]
    datatype = model.removeprefix("identity_").upper()
    assert triton_to_np_dtype(datatype) is not None
    return ["INPUT0"], ["OUTPUT0"], datatype, [-1]


class _Watching(grpc.aio.ServerInterceptor):
    """Notes the metadata of every call."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        told = dict(details.invocation_metadata)
        self._seen.metadata.append((details.method.rpartition("/")[2], told))
        return await continuation(details)


async def start(seen: Seen, typed: bool = False) -> tuple[grpc.aio.Server, int]:
    """Start on a free port of 127.0.0.1; returns the server and the port."""
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=limits, interceptors=[_Watching(seen)])
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(OipServer(seen, typed), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port
