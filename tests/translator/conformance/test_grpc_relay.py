"""The kit finds what a relay in front of a right gRPC server does wrong: streams in every dialect that has
them, and what version 1 has in forms of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from interlingua.schemas.grps import MESSAGES as GRPS
from interlingua.schemas.oip import MESSAGES as OIP
from interlingua.schemas.trtis import MESSAGES as TRTIS
from interlingua.translator.conformance.kit import CheckResult, Effort, checks_of
from interlingua.translator.conformance.session import examine
from interlingua.translator.conformance.wires import wires
from tests.translator.conformance.grpc_relay import Fault, grpc_relay

EFFORT = Effort(examples=8, secs=2, shrink=False)
SECS = 1.0
"""How long the kit waits for what never comes."""


@dataclass(frozen=True)
class Spoken:
    """A dialect over gRPC: its streaming method, its messages there, and a model."""

    dialect: str
    method: str
    answer: Any
    model: str


SPOKEN = {
    "oip": Spoken("oip", "ModelStreamInfer", OIP["inference.ModelStreamInferResponse"], "simple"),
    "trtis": Spoken("trtis", "StreamInfer", TRTIS["nvidia.inferenceserver.InferResponse"], "simple"),
    "grps": Spoken("grps", "PredictStreaming", GRPS["grps.protos.v1.GrpsMessage"], "words-1"),
}


def each(spoken: Spoken, change: Callable[[Any], object]) -> Fault:
    """Change each answer in place; one of which ``change`` says False is dropped."""

    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        for answer in answers:
            message = spoken.answer.FromString(answer)
            if change(message) is not False:
                yield message.SerializeToString()

    return fault


def refusal(message: Any) -> bool:
    """Whether an answer in a stream is an error, in any of the dialects."""
    name = message.DESCRIPTOR.name
    if name == "ModelStreamInferResponse":
        return bool(message.error_message)
    return bool(message.request_status.code != 1) if name == "InferResponse" else message.status.status == 2


def raw_of(message: Any) -> Any:
    """The raw contents of an answer."""
    return (
        message.infer_response.raw_output_contents
        if hasattr(message, "infer_response")
        else message.raw_output
    )


def last_byte_changed(message: Any) -> None:
    raws = raw_of(message)
    if raws:
        raws[0] = raws[0][:-1] + bytes([raws[0][-1] ^ 1])


def reversed_at_the_end(spoken: Spoken) -> Fault:
    return lambda answers: iter(list(answers)[::-1])


def held_to_the_end(spoken: Spoken) -> Fault:
    return lambda answers: iter(list(answers))


def one_is_lost(spoken: Spoken) -> Fault:
    return lambda answers: iter(list(answers)[:1])


def one_comes_twice(spoken: Spoken) -> Fault:
    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        for number, answer in enumerate(answers):
            yield answer
            if number:
                yield answer

    return fault


def id_is_lost(spoken: Spoken) -> Fault:
    def change(message: Any) -> None:
        if hasattr(message, "infer_response"):
            message.infer_response.id = ""
        else:
            message.meta_data.id = 0

    return each(spoken, change)


def id_of_refusals_is_lost(spoken: Spoken) -> Fault:
    lost = id_is_lost(spoken)

    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        for answer in answers:
            yield from lost([answer]) if refusal(spoken.answer.FromString(answer)) else [answer]

    return fault


def a_refusal_ends_the_stream(spoken: Spoken) -> Fault:
    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        for answer in answers:
            yield answer
            if refusal(spoken.answer.FromString(answer)):
                return

    return fault


def refusals_are_lost(spoken: Spoken) -> Fault:
    return each(spoken, lambda message: not refusal(message))


def never_ends(spoken: Spoken) -> Fault:
    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        yield from answers
        time.sleep(2 * SECS)

    return fault


def ends_in_an_error(spoken: Spoken) -> Fault:
    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        yield from answers
        error: Any = grpc.RpcError()
        error.code, error.details = (lambda: grpc.StatusCode.INTERNAL), (lambda: "the stream is over")
        raise error

    return fault


def another_value(spoken: Spoken) -> Fault:
    return each(spoken, last_byte_changed)


def something_else(spoken: Spoken, answers: Iterable[bytes]) -> Iterator[bytes]:
    """Other answers than those that come: without the first one, or with another value in each."""
    if spoken.dialect == "grps":
        return itertools.islice(answers, 1, None)
    return another_value(spoken)(answers)


def something_else_the_second_time(spoken: Spoken) -> Fault:
    calls = itertools.count()
    return lambda answers: something_else(spoken, answers) if next(calls) % 2 else iter(answers)


def something_else_at_the_same_time(spoken: Spoken) -> Fault:
    """A stream that is open beside another is answered otherwise."""
    running: set[object] = set()

    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        mine = object()
        running.add(mine)
        try:
            time.sleep(0.05)
            yield from something_else(spoken, answers) if len(running) > 1 else answers
        finally:
            running.discard(mine)

    return fault


def cut_contents(spoken: Spoken) -> Fault:
    def change(message: Any) -> None:
        if hasattr(message, "gtensors"):
            message.status.status = 0
        elif raw_of(message):
            raw_of(message)[0] = raw_of(message)[0][:-1]

    return each(spoken, change)


def without_a_wrapper(spoken: Spoken) -> Fault:
    def fault(answers: Iterable[bytes]) -> Iterator[bytes]:
        for answer in answers:
            yield spoken.answer.FromString(answer).infer_response.SerializeToString()

    return fault


def no_answer_is_the_last(spoken: Spoken) -> Fault:
    def change(message: Any) -> None:
        message.infer_response.parameters["triton_final_response"].bool_param = False

    return each(spoken, change)


MANY = ("oip", "trtis")

FAULTS = [
    *((dialect, "streams/many-requests", fault) for dialect in MANY for fault in (reversed_at_the_end, one_is_lost, one_comes_twice, id_is_lost)),
    *((dialect, "streams/one-by-one", held_to_the_end) for dialect in MANY),
    *((dialect, "streams/refused-between", fault) for dialect in MANY for fault in (a_refusal_ends_the_stream, refusals_are_lost, id_of_refusals_is_lost)),
    *((dialect, "streams/no-requests", fault) for dialect in MANY for fault in (never_ends, ends_in_an_error)),
    *((dialect, "streams/as-without", another_value) for dialect in MANY),
    *((dialect, "streams/ends", fault) for dialect in SPOKEN for fault in (never_ends, ends_in_an_error, cut_contents)),
    *((dialect, "streams/same-twice", something_else_the_second_time) for dialect in SPOKEN),
    *((dialect, "streams/at-once", something_else_at_the_same_time) for dialect in SPOKEN),
    *((dialect, "streams/refused", refusals_are_lost) for dialect in SPOKEN),
    ("oip", "oip-grpc/streamed-form", without_a_wrapper),
    ("oip", "oip-grpc/last-answer", no_answer_is_the_last),
]  # fmt: skip


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """What the model words takes and gives, which grps does not tell."""
    file = tmp_path / "words.yaml"
    sides = {"inputs": "TEXT", "outputs": "WORD"}
    tensors = {side: [{"name": name, "datatype": "BYTES", "shape": [1]}] for side, name in sides.items()}
    file.write_text(yaml.safe_dump(tensors))
    return file


def found(address: str, spoken: Spoken, rule: str, signature: Path) -> CheckResult:
    given = signature if spoken.dialect == "grps" else None
    _, results = examine(
        spoken.dialect, "grpc", address, [spoken.model], given, EFFORT, timeout_secs=SECS, only=rule
    )
    # the name of one rule may be the beginning of another's
    [result] = [result for result in results if result.check.name == rule]
    return result


def test_every_rule_of_streams_finds_a_fault() -> None:
    rules = {check.name for check in checks_of(wires()["oip/grpc"]) if check.name.startswith("streams/")}
    assert {rule for _, rule, _ in FAULTS if rule.startswith("streams/")} == rules


@pytest.mark.parametrize("dialect", SPOKEN)
def test_a_relay_without_a_fault_passes(served: dict[str, str], dialect: str, words: Path) -> None:
    spoken = SPOKEN[dialect]
    with grpc_relay(served["grpc"], spoken.method, iter) as address:
        given = words if dialect == "grps" else None
        _, results = examine(dialect, "grpc", address, [spoken.model], given, EFFORT, only="stream")
        assert not [result.reason for result in results if result.status.bad]


@pytest.mark.parametrize(
    ("dialect", "rule", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_fault_of_streams_is_found(
    served: dict[str, str], dialect: str, rule: str, fault: Callable[[Spoken], Fault], words: Path
) -> None:
    spoken = SPOKEN[dialect]
    with grpc_relay(served["grpc"], spoken.method, fault(spoken)) as address:
        result = found(address, spoken, rule, words)
    assert result.status.bad and result.reason, result


# --- what version 1 has in forms of its own


def lowest_first(message: Any) -> None:
    for output in message.meta_data.output:
        for entry in output.batch_classes:
            told = list(entry.cls)[::-1]
            del entry.cls[:]
            entry.cls.extend(told)


def entry_lost(message: Any) -> None:
    for output in message.meta_data.output:
        del output.batch_classes[1:]


def no_place_for_classes(message: Any) -> None:
    places = [at for at, output in enumerate(message.meta_data.output) if output.batch_classes]
    for place in places[::-1]:
        del message.raw_output[place]


def always_done(message: Any) -> None:
    message.request_status.code = 1


VERSION_1 = [
    ("Infer", "InferResponse", "classification/highest-first", lowest_first),
    ("Infer", "InferResponse", "classification/highest-first", entry_lost),
    ("Infer", "InferResponse", "classification/beside-others", no_place_for_classes),
    ("SharedMemoryControl", "SharedMemoryControlResponse", "shared-memory/registered-twice", always_done),
    ("SharedMemoryControl", "SharedMemoryControlResponse", "shared-memory/object-absent", always_done),
]


@pytest.mark.parametrize(
    ("method", "name", "rule", "change"), VERSION_1, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_fault_of_version_1_is_found(
    served: dict[str, str], method: str, name: str, rule: str, change: Callable[[Any], None], words: Path
) -> None:
    spoken = Spoken("trtis", method, TRTIS[f"nvidia.inferenceserver.{name}"], "simple")
    with grpc_relay(served["grpc"], method, each(spoken, change)) as address:
        result = found(address, spoken, rule, words)
    assert result.status.bad, result
