"""Clients of a grps server over HTTP and gRPC, by the facts of those in grps' own examples; that over bRPC is
``grps_brpc_client``.

Like the originals they go by the status in band, never by that of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import requests
from google.protobuf import json_format

from tests.standins.grps_contract import STUBS, GrpsMessage, from_json

METHODS = {
    "live": "CheckLiveness",
    "ready": "CheckReadiness",
    "online": "Online",
    "offline": "Offline",
    "server": "ServerMetadata",
    "model": "ModelMetadata",
}
"""What is asked beside inference, and the method of both RPC services for it."""


class GrpsError(Exception):
    """What the server said in band."""

    def __init__(self, status: Any) -> None:
        super().__init__(status.msg)
        self.code = status.code


def checked(message: Any) -> Any:
    """``message`` if its status tells success."""
    if message.status.status != 1:
        raise GrpsError(message.status)
    assert message.status.code == 200 and message.status.msg == "OK"
    return message


@dataclass
class GrpsHttp:
    """The HTTP interface; every call is a connection of its own, as with plain ``requests``."""

    address: str
    replies: list[requests.Response] = field(default_factory=list)

    def get(self, what: str) -> Any:
        """``live``, ``ready``, ``online`` or ``offline``, and ``server`` for its metadata."""
        folder = "metadata" if what == "server" else "health"
        return self._message(self._keep(requests.get(self._url(f"{folder}/{what}"), timeout=30)))

    def model_metadata(self, name: str) -> Any:
        """The metadata of the model ``name``, without a version."""
        return self._message(self._post("metadata/model", {"str_data": name}))

    def predict(self, message: Any) -> Any:
        """Ask with a message, in JSON; one of ``bin_data`` goes as it is."""
        return self._message(self._predict(message))

    def predict_json(self, document: dict[str, Any], query: str = "") -> Any:
        """Ask with a document and read one."""
        return self._post(f"infer/predict{query}", document).json()

    def stream(self, message: Any) -> Iterator[Any]:
        """The pieces of a stream: messages, and bytes where they are no JSON."""
        reply = self._predict(message, "?streaming=true", stream=True)
        text, decoder = b"".join(reply.iter_content(chunk_size=None)), json.JSONDecoder()
        while text := text.lstrip():
            try:
                rest = text.decode(errors="surrogateescape")
                document, end = decoder.raw_decode(rest)
            except ValueError:
                yield text
                return
            yield from_json(json.dumps(document))
            text = rest[end:].encode(errors="surrogateescape")

    def close(self) -> None:
        """Nothing is kept."""

    def _predict(self, message: Any, query: str = "", **options: Any) -> requests.Response:
        if message.WhichOneof("data_oneof") == "bin_data":
            query += f"{'&' if query else '?'}model={message.model}" if message.model else ""
            return self._keep(
                requests.post(
                    self._url(f"infer/predict{query}"),
                    data=message.bin_data,
                    headers={"Content-Type": "application/octet-stream"},
                    timeout=30,
                    **options,
                )
            )
        document = json_format.MessageToDict(message, preserving_proto_field_name=True)
        return self._post(f"infer/predict{query}", document, **options)

    def _post(self, path: str, document: dict[str, Any], **options: Any) -> requests.Response:
        return self._keep(requests.post(self._url(path), json=document, timeout=30, **options))

    def _keep(self, reply: requests.Response) -> requests.Response:
        self.replies.append(reply)
        return reply

    def _url(self, path: str) -> str:
        return f"http://{self.address}/grps/v1/{path}"

    def _message(self, reply: requests.Response) -> Any:
        if reply.headers.get("Content-Type") == "application/octet-stream":
            return GrpsMessage(bin_data=reply.content)
        return checked(from_json(reply.text))


class GrpsGrpc:
    """The gRPC interface, with the stubs that protoc makes; ``stub`` is that of another service than the one of
    a gRPC port."""

    def __init__(self, address: str, stub: Any = STUBS.GrpsServiceStub) -> None:
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(address, options=limits)
        self._stub = stub(self._channel)

    def get(self, what: str) -> Any:
        """``live``, ``ready``, ``online`` or ``offline``, and ``server`` for its metadata."""
        return checked(getattr(self._stub, METHODS[what])(GrpsMessage(), timeout=30))

    def model_metadata(self, name: str) -> Any:
        """The metadata of the model ``name``, without a version."""
        return checked(self._stub.ModelMetadata(GrpsMessage(str_data=name), timeout=30))

    def predict(self, message: Any) -> Any:
        """Ask with a message."""
        return checked(self._stub.Predict(message, timeout=30))

    def stream(self, message: Any) -> Iterator[Any]:
        """The pieces of a stream."""
        yield from self._stub.PredictStreaming(message, timeout=30)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()
