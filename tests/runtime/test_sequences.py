"""Which requests a sequence takes, and what a model is told of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runtime import sequences
from runtime.sequences import Control, SequenceBatching, Sequences
from schemas import Datatype, ErrorCode, InferenceError, InferRequest, Tensor
from schemas.messages import Sequence

PLAIN = SequenceBatching(idle_us=1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands until it is moved."""
    now = [100.0]
    monkeypatch.setattr(sequences.time, "monotonic", lambda: now[0])
    return now


def ask(known: Sequences, *place: object) -> tuple[Tensor, ...]:
    return known.admit(InferRequest("m", (), sequence=Sequence(*place) if place else None))  # type: ignore[arg-type]


def refused(known: Sequences, *place: object) -> str:
    with pytest.raises(InferenceError) as caught:
        ask(known, *place)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    return caught.value.message


def test_from_start_to_end() -> None:
    known = Sequences("m", PLAIN, batched=False)
    assert "START flag" in refused(known, 7)
    ask(known, 7, True)
    ask(known, 7)
    ask(known, "7", True)
    ask(known, 7, False, True)
    assert refused(known, 7) == (
        "inference request for sequence 7 to model 'm' must specify the START flag on the first request of "
        "the sequence"
    )
    ask(known, "7")
    ask(known, 8, True, True)
    assert "START flag" in refused(known, 8)


def test_a_request_outside_any_sequence() -> None:
    known = Sequences("m", PLAIN, batched=False)
    said = "inference request to model 'm' must specify a non-zero or non-empty correlation ID"
    assert refused(known) == said


def test_a_batch_in_a_sequence_is_one() -> None:
    known = Sequences("m", PLAIN, batched=True)
    known.admit(
        InferRequest("m", (Tensor("x", Datatype.INT8, (1, 2), bytes(2)),), sequence=Sequence(1, True))
    )
    pair = InferRequest("m", (Tensor("x", Datatype.INT8, (2, 1), bytes(2)),), sequence=Sequence(1))
    with pytest.raises(InferenceError, match="'m' must specify batch-size 1 due to requirements") as caught:
        known.admit(pair)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert Sequences("m", PLAIN, batched=False).admit(replace(pair, sequence=Sequence(2, True))) == ()


def test_a_sequence_that_stands_idle_is_over(clock: list[float]) -> None:
    known = Sequences("m", PLAIN, batched=False)
    ask(known, 1, True)
    ask(known, 2, True)
    clock[0] += 0.9
    ask(known, 1)
    clock[0] += 0.9
    ask(known, 1)
    assert "START flag" in refused(known, 2)
    clock[0] += 1.1
    assert "START flag" in refused(known, 1)
    assert not known._last


def test_what_a_model_is_told() -> None:
    controls = (
        Control("S", "CONTROL_SEQUENCE_START", Datatype.INT32, (-1, 1)),
        Control("E", "CONTROL_SEQUENCE_END", Datatype.FP32, (0, 0.5)),
        Control("R", "CONTROL_SEQUENCE_READY", Datatype.INT32),
        Control("I", sequences.CORRELATION_ID, Datatype.UINT64),
        Control("T", sequences.CORRELATION_ID, Datatype.BYTES),
    )
    known = Sequences("m", SequenceBatching(controls=controls), batched=True)
    told = {tensor.name: tensor for tensor in ask(known, 2**64 - 1, True)}
    assert all(tensor.shape == (1, 1) for tensor in told.values())
    assert [told[name].numpy().item() for name in "SERI"] == [1, 0, 1, 2**64 - 1]
    assert told["T"].elements() == [b"18446744073709551615"]
    again = {tensor.name: tensor for tensor in ask(known, 2**64 - 1, False, True)}
    assert [again[name].numpy().item() for name in "SE"] == [-1, 0.5]
    assert "correlation ID 'abc' is none that model 'm' takes: its input 'I' is UINT64" in refused(
        known, "abc", True
    )


def test_without_batches_there_is_one_value() -> None:
    control = Control("I", sequences.CORRELATION_ID, Datatype.INT32)
    known = Sequences("m", SequenceBatching(controls=(control,)), batched=False)
    (told,) = ask(known, 5, True)
    assert told.numpy().tolist() == np.array([5]).tolist()
    assert "is none that model" in refused(known, 2**40, True)
