"""Triton and the daemon on copies of one model repository, and what each answers to the same request."""

from __future__ import annotations

import json
import queue
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.conformance.oip_client import Server
from tests.e2e.daemon import Daemon
from tests.peers import servers

ANSWER_SECS = 30

Servers = dict[str, Server]
"""``triton`` and ``daemon``."""


@contextmanager
def beside(
    folder: Path,
    write: Callable[[Path], Sequence[str]],
    options: Sequence[str] = (),
    listener: Mapping[str, Any] | None = None,
) -> Iterator[Servers]:
    """Both servers on the repository that ``write`` writes; it returns the models to load at the start.
    Clients may load the others, with a configuration of their own. ``options`` are of Triton's command line,
    ``listener`` of the daemon's listeners."""
    places = {name: folder / name for name in ("triton", "daemon")}
    for place in places.values():
        place.mkdir()
    models = write(places["triton"] / "repository")
    shutil.copytree(places["triton"] / "repository", places["daemon"] / "repository")
    with servers.triton(places["triton"], models, places["triton"] / "repository", options) as triton:
        daemon = Daemon.start(
            places["daemon"],
            {
                "server": {"name": "triton"},
                "listeners": [
                    {"listen": "127.0.0.1:0", "transport": transport, "dialects": ["oip"], **(listener or {})}
                    for transport in ("http", "grpc")
                ],
                "model_repository": [
                    {
                        "path": str(places["daemon"] / "repository"),
                        "control": "explicit",
                        "overrides": "files",
                        "load": list(models),
                    }
                ],
            },
        )
        try:
            yield {"triton": triton, "daemon": Server(*daemon.addresses)}
            assert daemon.stop() == 0
            assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
        finally:
            daemon.kill()


def alike(both: Servers, outcome: Callable[[Server], Any]) -> Any:
    """What ``outcome`` gives for both servers, which must be the same."""
    found = {name: outcome(server) for name, server in both.items()}
    assert found["daemon"] == found["triton"]
    return found["triton"]


def http(
    server: Server, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Status and JSON of the answer to a POST of ``body``: bytes as they are, else as JSON; the bytes where
    the answer is no JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
    asked = urllib.request.Request(f"http://{server.http}{path}", data, dict(headers or {}))
    try:
        with urllib.request.urlopen(asked, timeout=ANSWER_SECS) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, content = error.code, error.read()
    try:
        return status, json.loads(content) if content else None
    except ValueError:
        return status, content


def grpc_input(name: str, array: np.ndarray[Any, Any], datatype: str) -> tritonclient.grpc.InferInput:
    """An input of tritonclient."""
    made = tritonclient.grpc.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def grpc(server: Server, model: str, inputs: Sequence[Any], output: str = "OUT") -> tuple[str, Any]:
    """``OK`` and the values of ``output``, or the name of the status and its text."""
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        try:
            answer = client.infer(model, inputs, client_timeout=ANSWER_SECS)
        except InferenceServerException as error:
            return str(error.status()).removeprefix("StatusCode."), error.message()
    found = answer.as_numpy(output)
    return "OK", None if found is None else found.tolist()


class Stream:
    """One stream of tritonclient's; ``take`` gives the answers as they come."""

    def __init__(self, server: Server) -> None:
        self._client = tritonclient.grpc.InferenceServerClient(server.grpc)
        self._answers: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def __enter__(self) -> Stream:
        self._client.start_stream(lambda result, error: self._answers.put((result, error)))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_stream(cancel_requests=True)
        self._client.close()

    def ask(self, model: str, inputs: Sequence[Any], id: str = "", **more: Any) -> None:
        """Send a request. The end of its answers is an answer too."""
        self._client.async_stream_infer(
            model, list(inputs), request_id=id, enable_empty_final_response=True, **more
        )

    def take(self, secs: float = ANSWER_SECS) -> tuple[str, Any, bool]:
        """The id of the request, the values of OUT, or the text of an error, and whether it is the last.
        Raises ``queue.Empty`` where nothing comes."""
        result, error = self._answers.get(timeout=secs)
        if error is not None:
            return "", error.message(), True
        message = result.get_response()
        found = result.as_numpy("OUT") if message.outputs else None
        return (
            message.id,
            None if found is None else found.tolist(),
            message.parameters["triton_final_response"].bool_param,
        )

    def all(self, count: int = 1, secs: float = ANSWER_SECS) -> list[tuple[str, Any, bool]]:
        """The answers until ``count`` requests have ended."""
        found = []
        while count:
            found.append(self.take(secs))
            count -= found[-1][2]
        return found
