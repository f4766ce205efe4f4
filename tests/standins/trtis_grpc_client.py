"""Version 1 over gRPC, as the stubs of the original: a status other than OK is no application error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.standins.trtis_client import (
    Answer,
    ClientFailure,
    answer_of,
    checked_header,
    placed,
    question,
    read_output,
    succeed,
)
from tests.standins.trtis_contract import LATEST, SERVICE, message, one_line, parse


@dataclass
class TrtisGrpc:
    """A channel to a server."""

    address: str
    channel: Any = field(init=False)

    def __post_init__(self) -> None:
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(self.address, limits)

    def call(self, method: str, request: Any) -> Any:
        """One unary call; raises the error that the answer's ``request_status`` holds."""
        return checked(self.raw_call(method, request))

    def raw_call(self, method: str, request: Any) -> Any:
        """One unary call; the answer as it is."""
        invoke = self.channel.unary_unary(
            SERVICE + method,
            request_serializer=lambda value: value.SerializeToString(),
            response_deserializer=lambda data: parse(f"{method}Response", data),
        )
        return invoke(request, timeout=30)

    def status(self, model: str = "") -> Any:
        return self.call("Status", message("StatusRequest", model_name=model)).server_status

    def health(self, mode: str) -> bool:
        return bool(self.call("Health", message("HealthRequest", mode=mode)).health)

    def load(self, model: str) -> None:
        self.call("ModelControl", message("ModelControlRequest", model_name=model, type=1))

    def unload(self, model: str) -> None:
        self.call("ModelControl", message("ModelControlRequest", model_name=model))

    def repository(self) -> list[str]:
        answer = self.call("Repository", message("RepositoryRequest", index=True))
        return [entry.name for entry in answer.index.models]

    def register(self, region: str, key: str, byte_size: int, offset: int = 0) -> None:
        where = {"shared_memory_key": key, "offset": offset}
        self._regions(register={"name": region, "system_shared_memory": where, "byte_size": byte_size})

    def register_cuda(self, region: str, handle: bytes, byte_size: int, device: int = 0) -> None:
        where = {"raw_handle": handle, "device_id": device}
        self._regions(register={"name": region, "cuda_shared_memory": where, "byte_size": byte_size})

    def unregister(self, region: str) -> None:
        self._regions(unregister={"name": region})

    def unregister_all(self) -> None:
        self._regions(unregister_all={})

    def regions(self) -> dict[str, Any]:
        answer = self._regions(status={})
        return {region.name: region for region in answer.shared_memory_status.shared_memory_region}

    def _regions(self, **control: Any) -> Any:
        return self.call("SharedMemoryControl", message("SharedMemoryControlRequest", **control))

    def context(self, model: str, version: int = LATEST) -> GrpcContext:
        """The original asks for the model's configuration whenever a context is made."""
        return GrpcContext(model, version, self.status(model).model_status[model].config, self)

    def infer(self, model: str, *question: Any, version: int = LATEST, **options: Any) -> Answer:
        """One inference in a context of its own."""
        return self.context(model, version).infer(*question, **options)

    def stream(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The answers of one stream, as they are."""
        invoke = self.channel.stream_stream(
            SERVICE + "StreamInfer",
            request_serializer=lambda value: value.SerializeToString(),
            response_deserializer=lambda data: parse("InferResponse", data),
        )
        yield from invoke(iter(requests), timeout=60)

    def close(self) -> None:
        self.channel.close()


@dataclass
class GrpcContext:
    """A model as a gRPC client uses it."""

    model: str
    version: int
    config: Any
    client: TrtisGrpc

    def request(self, *asked: Any, bodies: list[bytes] | None = None, **options: Any) -> Any:
        """The message of a question; ``bodies`` replaces the bytes that the question would have."""
        header, made = question(self.config, *asked, **options)
        return message(
            "InferRequest",
            model_name=self.model,
            model_version=self.version,
            meta_data=header,
            raw_input=made if bodies is None else bodies,
        )

    def infer(self, *asked: Any, **options: Any) -> Answer:
        return self.read(self.client.call("Infer", self.request(*asked, **options)), placed(asked))

    def read(self, response: Any, elsewhere: Collection[str] = ()) -> Answer:
        """The outputs: the bytes of each stand at its own position, empty where there are none."""
        header = checked_header(one_line(checked(response).meta_data))
        outputs = {}
        for position, output in enumerate(header.output):
            if position >= len(response.raw_output):
                raise ClientFailure(f"Expected RAW output for result '{output.name}'")
            outputs[output.name] = read_output(
                self.config,
                output,
                header.batch_size,
                response.raw_output[position],
                output.name in elsewhere,
            )
        return answer_of(header, outputs, response.request_status)


def checked(response: Any) -> Any:
    """The response, unless it holds an error; one without a status is an error without words."""
    succeed(response.request_status)
    return response
