"""Clients that send one request of a sequence at a time, over Open Inference Protocol and version 1."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.standins.trtis_client import TrtisError
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp


@dataclass
class Refusal(Exception):
    """What a server said, whatever the protocol."""

    code: str
    message: str


Ask = Callable[..., list[int]]
"""Asks a model with a value, the id of a sequence, and flags, "s" for its start and "e" for its end; in a thread
of its own."""


def options_of(identity: int | str, flags: str) -> dict[str, Any]:
    return {"sequence_id": identity, "sequence_start": "s" in flags, "sequence_end": "e" in flags}


def answer_of(result: Any) -> list[int]:
    return [int(number) for number in result.as_numpy("OUT").ravel()]


def input_of(package: Any, number: int, rows: int) -> Any:
    tensor = package.InferInput("IN", [rows, 1], "INT32")
    tensor.set_data_from_numpy(np.full((rows, 1), number, np.int32))
    return tensor


def _oip(package: Any, address: str) -> Ask:
    def ask(model: str, number: int, identity: int | str, flags: str = "", rows: int = 1) -> list[int]:
        with package.InferenceServerClient(address) as client:
            try:
                return answer_of(
                    client.infer(model, [input_of(package, number, rows)], **options_of(identity, flags))
                )
            except InferenceServerException as error:
                raise Refusal(str(error.status()), error.message()) from error

    return ask


def _stream(address: str) -> Ask:
    def ask(model: str, number: int, identity: int | str, flags: str = "", rows: int = 1) -> list[int]:
        answers: queue.Queue[Any] = queue.Queue()
        with triton_grpc.InferenceServerClient(address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(
                model, [input_of(triton_grpc, number, rows)], **options_of(identity, flags)
            )
            result, error = answers.get(timeout=60)
            client.stop_stream()
        if error is not None:
            raise Refusal("in the stream", error.message()) from error
        return answer_of(result)

    return ask


def _v1(kind: Any, address: str) -> Ask:
    def ask(model: str, number: int, identity: int, flags: str = "", rows: int = 1) -> list[int]:
        client = kind(address)
        shape = (1,) if model == "nobatch" else (rows, 1)
        fields = {"correlation_id": identity, "flags": ("s" in flags) + 2 * ("e" in flags)}
        try:
            answer = client.infer(model, {"IN": np.full(shape, number, np.int32)}, ["OUT"], **fields)
        except TrtisError as error:
            raise Refusal(error.code, error.message) from error
        finally:
            client.close()
        return [int(number) for number in answer.outputs["OUT"].ravel()]

    return ask


def clients_of(http: str, grpc: str) -> dict[str, Ask]:
    """By protocol, for a server at two addresses."""
    return {
        "oip over http": _oip(triton_http, http),
        "oip over grpc": _oip(triton_grpc, grpc),
        "oip in a stream": _stream(grpc),
        "v1 over http": _v1(TrtisHttp, http),
        "v1 over grpc": _v1(TrtisGrpc, grpc),
    }
