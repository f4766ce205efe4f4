"""Requests against signatures: what passes, and the words for what does not (they are Triton's)."""

import pytest

from interlingua.runtime.models import validation
from interlingua.runtime.models.validation import RequestCheck
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferHeads,
    InferRequest,
    Leeway,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorHead,
    TensorSpec,
)

FP32, INT32 = Datatype.FP32, Datatype.INT32

ADD_SUB = Signature(
    (TensorSpec("INPUT0", FP32, (-1,)), TensorSpec("INPUT1", FP32, (-1,))),
    (TensorSpec("OUTPUT0", FP32, (-1,)), TensorSpec("OUTPUT1", FP32, (-1,))),
)
BATCHED = Signature(
    (TensorSpec("INPUT0", INT32, (-1, 16)), TensorSpec("INPUT1", INT32, (-1, 16))),
    (TensorSpec("OUTPUT0", INT32, (-1, 16)),),
    max_batch_size=8,
)
OPTIONAL = Signature(
    (TensorSpec("A", INT32, (-1,)), TensorSpec("B", INT32, (-1, 2), optional=True)),
    (TensorSpec("OUT", INT32, ()),),
)
SCALAR = Signature((TensorSpec("S", FP32, ()),), (TensorSpec("T", FP32, ()),))


def tensor(name: str, datatype: Datatype = FP32, shape: tuple[int, ...] = (4,)) -> Tensor:
    return Tensor(name, datatype, shape, memoryview(b""))


def pair(shape0: tuple[int, ...], shape1: tuple[int, ...], datatype: Datatype = FP32) -> tuple[Tensor, ...]:
    return tensor("INPUT0", datatype, shape0), tensor("INPUT1", datatype, shape1)


def check(signature: Signature, *inputs: Tensor, outputs=None, **more) -> tuple[str, ...]:
    if outputs is not None:
        outputs = tuple(RequestedOutput(o) if isinstance(o, str) else o for o in outputs)
    return RequestCheck("m", signature).check(InferRequest("m", inputs, outputs, **more))


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        (ADD_SUB, pair((4,), (4,))),
        (ADD_SUB, pair((0,), (7,))),
        (ADD_SUB, pair((4,), (4,))[::-1]),
        (BATCHED, pair((1, 16), (1, 16), INT32)),
        (BATCHED, pair((8, 16), (8, 16), INT32)),
        (OPTIONAL, (tensor("A", INT32),)),
        (OPTIONAL, (tensor("B", INT32, (5, 2)), tensor("A", INT32))),
        (SCALAR, (tensor("S", shape=()),)),
    ],
)
def test_what_agrees_passes(signature: Signature, inputs: tuple[Tensor, ...]) -> None:
    assert check(signature, *inputs) == tuple(signature.output_names)


@pytest.mark.parametrize(
    ("signature", "inputs", "said"),
    [
        (
            ADD_SUB,
            (),
            "expected 2 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required "
            "input(s) ['INPUT0','INPUT1']. Please provide all required input(s).",
        ),
        (
            ADD_SUB,
            (tensor("INPUT0"),),
            "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['INPUT0'], but missing required "
            "input(s) ['INPUT1']. Please provide all required input(s).",
        ),
        (
            ADD_SUB,
            (*pair((4,), (4,)), tensor("Z")),
            "expected 2 inputs but got 3 inputs for model 'm'. Got input(s) ['INPUT0','INPUT1','Z'], but "
            "missing required input(s) []. Please provide all required input(s).",
        ),
        (ADD_SUB, (tensor("INPUT0"), tensor("XX")), "unexpected inference input 'XX' for model 'm'"),
        (ADD_SUB, (tensor("INPUT0"), tensor("INPUT0")), "input 'INPUT0' already exists in request"),
        (
            ADD_SUB,
            (tensor("INPUT0"), tensor("INPUT1"), tensor("INPUT1"), tensor("INPUT0")),
            "input 'INPUT1' already exists in request",
        ),
        (
            ADD_SUB,
            (tensor("INPUT0", INT32), tensor("INPUT1")),
            "inference input 'INPUT0' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            ADD_SUB,
            pair((2, 2), (4,)),
            "unexpected shape for input 'INPUT0' for model 'm'. Expected [-1], got [2,2]. ",
        ),
        (
            ADD_SUB,
            pair((4,), ()),
            "unexpected shape for input 'INPUT1' for model 'm'. Expected [-1], got []. ",
        ),
        (
            BATCHED,
            pair((1, 16), (1, 15), INT32),
            "unexpected shape for input 'INPUT1' for model 'm'. Expected [-1,16], got [1,15]. "
            "The first dimension is the batch.",
        ),
        (BATCHED, pair((9, 16), (9, 16), INT32), "inference request batch-size must be <= 8 for 'm'"),
        (BATCHED, pair((0, 16), (0, 16), INT32), "inference request batch-size must be >= 1 for 'm'"),
        (
            BATCHED,
            pair((2, 16), (3, 16), INT32),
            "input 'INPUT1' batch size does not match other inputs for 'm'",
        ),
        (
            OPTIONAL,
            (tensor("B", INT32, (5, 2)),),
            "expected number of inputs between 1 and 2 but got 1 inputs for model 'm'. Got input(s) ['B'], but "
            "missing required input(s) ['A']. Please provide all required input(s).",
        ),
        (
            SCALAR,
            (tensor("S", shape=(1,)),),
            "unexpected shape for input 'S' for model 'm'. Expected [], got [1]. ",
        ),
    ],
)
def test_what_does_not_is_named(signature: Signature, inputs: tuple[Tensor, ...], said: str) -> None:
    with pytest.raises(InferenceError) as caught:
        check(signature, *inputs)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_TENSOR, said)


@pytest.mark.parametrize(
    ("asked", "computed"),
    [
        (None, ("OUTPUT0", "OUTPUT1")),
        ((), ()),
        (("OUTPUT1",), ("OUTPUT1",)),
        (("OUTPUT1", "OUTPUT0"), ("OUTPUT0", "OUTPUT1")),
    ],
)
def test_outputs_requested_in_the_models_order(asked, computed) -> None:
    assert check(ADD_SUB, *pair((4,), (4,)), outputs=asked) == computed


def test_an_output_that_cannot_be_had() -> None:
    with pytest.raises(InferenceError) as caught:
        check(ADD_SUB, *pair((4,), (4,)), outputs=["NOPE"])
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert caught.value.message == "unexpected inference output 'NOPE' for model 'm'"


@pytest.mark.parametrize(
    "asked",
    [
        RequestedOutput("OUTPUT0", classification=2),
        RequestedOutput("OUTPUT0", placement=SharedMemoryRef("r", 0, 16)),
    ],
)
def test_what_becomes_of_an_output_is_nothing_to_the_model(asked: RequestedOutput) -> None:
    assert check(ADD_SUB, *pair((4,), (4,)), outputs=[asked]) == ("OUTPUT0",)


def test_an_output_requested_twice() -> None:
    with pytest.raises(InferenceError, match="output 'OUTPUT1' already requested"):
        check(ADD_SUB, *pair((4,), (4,)), outputs=["OUTPUT1", "OUTPUT0", "OUTPUT1"])


def test_a_model_without_sequences_ignores_them() -> None:
    assert check(ADD_SUB, *pair((4,), (4,)), sequence=Sequence(7, start=True)) == check(
        ADD_SUB, *pair((4,), (4,))
    )


def test_what_has_passed_lets_nothing_else_pass() -> None:
    checks = RequestCheck("m", BATCHED)

    def passes(*inputs: Tensor) -> bool:
        try:
            return bool(checks.check(InferRequest("m", inputs)))
        except InferenceError:
            return False

    for _ in range(2):
        assert passes(*pair((2, 16), (2, 16), INT32))
        assert not passes(*pair((2, 16), (2, 16), FP32))
        assert not passes(*pair((2, 16), (1, 16), INT32))
        assert not passes(*pair((2, 16), (2, 16), INT32), tensor("INPUT1", INT32, (2, 16)))
        assert not passes(pair((2, 16), (2, 16), INT32)[0])
        assert not passes(*pair((9, 16), (9, 16), INT32))
        assert not passes(tensor("INPUT0", INT32, (2, 16)), tensor("INPUT1", FP32, (2, 16)))
    alone = RequestCheck("m", SCALAR)
    for datatype, expected in ((FP32, True), (INT32, False)) * 2:
        request = InferRequest("m", (tensor("S", datatype, ()),))
        assert (
            alone.passes(
                InferHeads(
                    tuple(TensorHead(each.name, each.datatype, each.shape) for each in request.inputs), ()
                )
            )
            is expected
        )


def test_what_has_passed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_MOST_PASSED", 3)
    signature = Signature((TensorSpec("x", FP32, (-1,)),), (TensorSpec("y", FP32, (-1,)),))
    checks = RequestCheck("m", signature, Leeway(names=True))
    for length in range(20):
        checks.check(InferRequest("m", (tensor("x", FP32, (length,)),)))
        assert len(checks._passed) <= 3
    checks._passed.clear()
    checks.check(InferRequest("m", (tensor("n" * 100_000),)))
    assert not checks._passed, "a name of the caller's own"
