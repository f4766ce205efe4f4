"""Checks of streams and of models that answer a request any number of times."""

from __future__ import annotations

import json
import queue
from typing import Any

import numpy as np
import requests

from tests.conformance.oip_checks_infer import A, B, addends, said, same
from tests.conformance.oip_client import GRPC, STREAM_SECS, WAIT_SECS, Client, check, refused


@check("streams", *GRPC)
def stream(client: Client) -> None:
    sent = [
        {"model_name": "simple", "inputs": addends(client), "request_id": str(number)} for number in range(8)
    ]
    answers = client.stream(sent, 8)
    assert [said(client, answer)[2] for answer in answers] == [str(number) for number in range(8)]
    for answer in answers:
        same(answer.as_numpy("OUTPUT0"), A + B)


@check("streams: a failure leaves the stream open", *GRPC)
def stream_failure(client: Client) -> None:
    good = {"model_name": "simple", "inputs": addends(client), "request_id": "good"}
    bad = {"model_name": "nothing_like_it", "inputs": addends(client), "request_id": "bad"}
    failed, answer = client.stream([bad, good], 2)
    assert "nothing_like_it" in failed.message()
    same(answer.as_numpy("OUTPUT1"), A - B)


@check("streams: sequences", *GRPC)
def stream_sequences(client: Client) -> None:
    sent = []
    for step, value in enumerate((11, 7, 5)):
        for identity in (901, 902):
            given = client.input(
                "INPUT", np.array([[value if identity == 901 else -value]], np.int32), "INT32"
            )
            flags = {"sequence_start": step == 0, "sequence_end": step == 2}
            sent.append(
                {"model_name": "simple_sequence", "inputs": [given], "sequence_id": identity, **flags}
            )
    answers = [int(answer.as_numpy("OUTPUT")[0, 0]) for answer in client.stream(sent, 6)]
    # the model adds one to the first of a sequence
    assert answers[0::2] == [12, 7, 5] and answers[1::2] == [-10, -7, -5]


def repeated(client: Client, values: list[int], **options: Any) -> dict[str, Any]:
    """A request for one answer for each of ``values``."""
    inputs = [
        client.input("IN", np.array(values, np.int32), "INT32"),
        client.input("DELAY", np.zeros(len(values), np.uint32), "UINT32"),
        client.input("WAIT", np.zeros(1, np.uint32), "UINT32"),
    ]
    return {"model_name": "repeat_int32", "inputs": inputs, **options}


@check("decoupled models", *GRPC)
def decoupled(client: Client) -> None:
    answers = client.stream([repeated(client, [4, 2, 0, 1], request_id="r")], 4)
    assert [int(answer.as_numpy("OUT")[0]) for answer in answers] == [4, 2, 0, 1]
    assert [int(answer.as_numpy("IDX")[0]) for answer in answers] == [0, 1, 2, 3]
    assert {said(client, answer) for answer in answers} == {("repeat_int32", "1", "r")}


@check("decoupled models: an empty final answer", "grpc")
def decoupled_final(client: Client) -> None:
    *answers, last = client.stream([repeated(client, [7, 8], enable_empty_final_response=True)], 3)

    def is_final(answer: Any) -> bool:
        return bool(answer.get_response().parameters["triton_final_response"].bool_param)

    assert [is_final(answer) for answer in answers] == [False, False]
    assert is_final(last) and not last.get_response().outputs
    [only] = client.stream([repeated(client, [], enable_empty_final_response=True)], 1)
    assert is_final(only) and not only.get_response().outputs


@check("decoupled models: a failure among the answers", *GRPC)
def decoupled_failure(client: Client) -> None:
    given = client.input("IN", np.array([1, -1, 2], np.int32), "INT32")
    first, failed, last = client.stream([{"model_name": "repeat", "inputs": [given]}], 3)
    assert int(first.as_numpy("OUT")[0]) == 1 and int(last.as_numpy("OUT")[0]) == 2
    assert "negative" in failed.message()


@check("decoupled models: not by a single call")
def decoupled_unary(client: Client) -> None:
    given = client.input("IN", np.array([1], np.int32), "INT32")
    with refused("501" if client.over_http else "UNIMPLEMENTED", "decoupled"):
        client.ask("repeat", given)


@check("streams: cancelled by the caller", "grpc")
def stream_cancelled(client: Client) -> None:
    assert client.server.ends_streams
    arrived: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: arrived.put(error))
    client.async_stream_infer(**repeated(client, list(range(1000))))
    failed = arrived.get(timeout=STREAM_SECS)
    client.stop_stream(cancel_requests=True)
    assert failed is None
    same(client.ask("simple", *addends(client)).as_numpy("OUTPUT0"), A + B)


def _generate(
    client: Client, endpoint: str, document: dict[str, Any], model: str = "gen"
) -> requests.Response:
    url = f"http://{client.server.http}/v2/models/{model}/{endpoint}"
    return requests.post(url, json=document, timeout=WAIT_SECS)


@check("generate", "http")
def generate(client: Client) -> None:
    answer = _generate(client, "generate", {"text_input": "hi", "REPETITION": 1, "id": "g"})
    assert answer.status_code == 200
    assert answer.json() == {"id": "g", "model_name": "gen", "model_version": "1", "text_output": "hi0"}


@check("generate: a model that answers once", "http")
def generate_once(client: Client) -> None:
    answer = _generate(client, "generate", {"text_input": "hi", "id": "g"}, "gen1")
    assert answer.status_code == 200
    said = {"id": "g", "model_name": "gen1", "model_version": "1", "text_output": "hi"}
    assert answer.json() == said
    del said["id"]
    answer = _generate(client, "generate_stream", {"text_input": "hi"}, "gen1")
    assert answer.status_code == 200
    assert [json.loads(answer.text.removeprefix("data: "))] == [said]


@check("generate_stream", "http")
def generate_stream(client: Client) -> None:
    answer = _generate(client, "generate_stream", {"text_input": "hi", "REPETITION": 3})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [event.removeprefix("data: ") for event in answer.text.strip().split("\n\n")]
    assert [json.loads(event)["text_output"] for event in events] == ["hi0", "hi1", "hi2"]
