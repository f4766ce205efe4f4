"""Bad inputs over every dialect and transport and both engines, each with its exact answer.

The answers are a table, ``bad_inputs/answers.tsv``; ``INTERLINGUA_WRITE=1 python -m pytest
tests/e2e/test_bad_inputs.py`` writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.registry import DIALECTS, bindings
from tests.e2e.bad_inputs import graphpipe, grps, oip_grpc, oip_http, tfserving, trtis
from tests.e2e.bad_inputs.wires import TRANSPORTS, Answer, connections, shown
from tests.e2e.daemon import ROOT, Daemon

TABLE = Path(__file__).parent / "bad_inputs" / "answers.tsv"
INPUTS: dict[str, Any] = {
    name: each
    for module in (oip_http, oip_grpc, trtis, graphpipe, grps, tfserving)
    for name, each in module.inputs().items()
}


_SERVERS = ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "UNIMPLEMENTED", "DATA_LOSS")

HABITS = {
    "oip/http coding: *content coding*": "Triton answers 501 to an unknown content coding",
    "oip/http control: load an unknown model": "Triton answers 500 (INTERNAL)",
    "oip/http control: load outside the folder": "as above",
    "oip/http control: *unknown repository": "Triton answers 501 to a repository_name",
    "oip/http control: *_file": "Triton answers 501 to a location that clients may not change",
    "oip/http shared memory: register an object that does not exist": "Triton answers 500 (INTERNAL)",
    "*/grpc *no protobuf": "gRPC servers answer INTERNAL to bytes that are no message",
    "*/grpc *cut short": "as above",
    "oip/grpc infer: a text that is no UTF-8": "as above",
    "oip/grpc infer: a group without an end": "as above",
    "oip/grpc infer: a field number of 0": "as above",
    "oip/grpc infer: a decoupled model": "Triton answers UNIMPLEMENTED to a unary call of a decoupled model",
    "*/grpc *unknown method": "gRPC's status for it is UNIMPLEMENTED",
    "tfserving/grpc MultiInference: * method": "multi_inference.cc answers UNIMPLEMENTED to a method that it has not",
    "oip/grpc call: an unknown service": "as above",
    "oip/grpc call: a method without a service": "as above",
    "oip/grpc call: load *": "Triton answers INTERNAL, and UNIMPLEMENTED to a repository_name",
    "oip/grpc call: index of an unknown repository": "as above",
    "oip/grpc call: register *": "Triton answers INTERNAL to a region that it cannot open",
    "trtis/grpc *unknown model": "version 1 answers UNAVAILABLE, INTERNAL to a load",
    "trtis/grpc *an unknown version": "as above",
    "trtis/grpc infer: an empty message": "as above, for version 0 of the default model",
    "trtis/grpc *an unknown mode": "version 1 answers UNKNOWN to a request of no type that it has",
    "trtis/grpc *an unknown type": "as above",
    "trtis/grpc *no request type": "as above",
    "grps/*": "grps answers 500 to every prediction that it cannot make",
}
"""Bad inputs that get the status of a failed server, because the original servers answer so and their clients match
on it."""


@pytest.fixture(scope="module", params=["native", "library"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One listener per transport, every dialect on each; both engines answer alike."""
    engine = {"engine": request.param}
    models = {"path": str(ROOT / "examples" / "models"), "control": "explicit"}
    running = Daemon.start(
        tmp_path_factory.mktemp("bad-inputs"),
        {
            "listeners": [
                {
                    "listen": "127.0.0.1:0",
                    "transport": each,
                    "dialects": [name for name, dialect in DIALECTS.items() if each in dialect.bindings],
                    **(engine if each in ("http", "grpc") else {}),
                }
                for each in TRANSPORTS
            ],
            "model_repository": [models],
            "default_model": "identity_fp32",
        },
    )
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


@pytest.fixture(scope="module")
def answers(daemon: Daemon) -> dict[str, Answer]:
    open_ = connections(daemon)
    try:
        found = {name: each.send(open_[each.transport]) for name, each in INPUTS.items()}
    finally:
        for connection in open_.values():
            connection.close()
    assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    return found


def _line(name: str, answer: Answer) -> str:
    return "\t".join((name, answer.status, json.dumps(shown(answer.text), ensure_ascii=False)))


def test_every_bad_input_has_its_exact_answer(answers: dict[str, Answer]) -> None:
    lines = [_line(name, answer) for name, answer in answers.items()]
    if os.environ.get("INTERLINGUA_WRITE"):
        TABLE.write_text("\n".join(lines) + "\n")
    assert lines == TABLE.read_text().splitlines()


def _blames_server(answer: Answer) -> bool:
    """Whether an answer has a status of a failed server: of HTTP, gRPC, version 1 or grps."""
    if answer.status.isdigit() and 500 <= int(answer.status) < 1000:  # bRPC counts from 1000
        return True
    code = answer.text.partition(":")[0]
    in_band = answer.status in ("OK", "0") and (code in _SERVERS or code.startswith("5"))
    return answer.status in _SERVERS or in_band


def _habit(name: str) -> str:
    return next((pattern for pattern in HABITS if fnmatchcase(name, pattern)), "")


def test_a_mistake_of_a_caller_is_no_failure_of_the_server(answers: dict[str, Answer]) -> None:
    """A balancer ejects servers that answer with 5xx: only originals' habits that clients rely on."""
    blamed = {name: answer for name, answer in answers.items() if _blames_server(answer)}
    assert not [(name, answer) for name, answer in blamed.items() if not _habit(name)]
    assert {_habit(name) for name in blamed} == set(HABITS)


def _accepted(name: str, answer: Answer) -> bool:
    """Whether ``answer`` is a success, of the transport or in the message."""
    if name == "grps/http a stream from an unknown model":  # the status of a stream precedes its error
        return '"FAILURE"' not in answer.text
    return answer.status == "200" or answer.text.startswith(("SUCCESS", "200:", "0:"))


def test_every_bad_input_is_refused(answers: dict[str, Answer]) -> None:
    assert not [name for name, answer in answers.items() if _accepted(name, answer)]
    # version 1 refuses some requests over HTTP without a word
    assert not [
        name for name, answer in answers.items() if not answer.text and not name.startswith("trtis/http")
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_bad_inputs(dialect: str) -> None:
    assert len([name for name in INPUTS if name.startswith(f"{dialect}/")]) >= 300


@pytest.mark.parametrize("wire", list(bindings()))
def test_there_are_bad_inputs_for_every_binding(wire: str) -> None:
    assert len([name for name in INPUTS if name.startswith(f"{wire} ")]) >= 100
