"""Verdicts, each where it is known what it has to be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interlingua.protocols.dialect import Capability, Dialect
from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import Datatype, ErrorCode, Signature, TensorSpec
from interlingua.translator.fidelity.page import page
from interlingua.translator.fidelity.parties import callers, reported, targets
from interlingua.translator.fidelity.path import BINARY, PAYLOADS, judge, matrix
from interlingua.translator.fidelity.tensors import stated
from interlingua.translator.fidelity.verdict import Outcome, Verdict


def tensor(caller: str, target: str, name: str) -> tuple[str, str]:
    sent, answered = judge(callers()[caller], targets()[target]).tensors[name]
    return str(sent), str(answered)


def feature(caller: str, target: str, name: str) -> Verdict:
    return judge(callers()[caller], targets()[target]).features[name]


def test_every_caller_meets_every_target() -> None:
    assert matrix().keys() == {(caller, target) for caller in callers() for target in targets()}
    assert {
        "oip/http",
        "oip/grpc",
        "trtis/http",
        "trtis/grpc",
        "graphpipe/http",
        "grps/brpc",
    } <= callers().keys()
    assert {"onnxruntime", "torch", "python", *callers()} == targets().keys()


def test_what_neither_side_minds_is_exact() -> None:
    assert tensor("oip/http", "python", "BF16") == ("exact", "exact")
    assert tensor("oip/http", "grps/grpc", "UINT16") == ("exact", "exact"), "the widening is undone"


def test_a_caller_sees_the_wider_type() -> None:
    assert tensor("grps/http", "oip/grpc", "UINT32") == ("widened to INT64, by grps/http",) * 2
    assert tensor("graphpipe/http", "torch", "BOOL") == ("widened to UINT8, by graphpipe/http",) * 2


def test_a_refusal_has_the_code_that_the_caller_understands() -> None:
    assert tensor("oip/http", "trtis/grpc", "BF16") == (
        "refused (INVALID_TENSOR), by trtis/grpc",
        "refused (UNSUPPORTED), by trtis/grpc",
    )
    assert tensor("trtis/http", "onnxruntime", "BF16") == (
        "refused (UNREPRESENTABLE), by trtis/http",
        "refused (UNSUPPORTED), by trtis/http",
    )
    assert tensor("oip/grpc", "onnxruntime", BINARY)[0] == "refused (INVALID_TENSOR), by onnxruntime"


def test_no_model_of_an_engine_has_what_the_engine_lacks() -> None:
    assert tensor("oip/grpc", "torch", "BYTES")[0].startswith("not offered, by torch")


def test_one_nan_of_json_is_all_that_is_left_of_them() -> None:
    assert tensor("oip/grpc", "grps/http", PAYLOADS)[0].startswith("dropped")
    assert tensor("oip/grpc", "grps/grpc", PAYLOADS)[0] == "exact"


@pytest.mark.parametrize(
    ("caller", "target", "name", "outcome"),
    [
        ("oip/grpc", "trtis/http", "id, a number", Outcome.CARRIED),
        ("oip/grpc", "trtis/http", "id, any text", Outcome.DROPPED),
        ("trtis/http", "oip/grpc", "id, any text", Outcome.ABSENT),
        ("oip/http", "graphpipe/http", "parameters: str", Outcome.DROPPED),
        ("oip/http", "graphpipe/http", "parameters with a place of their own", Outcome.CARRIED),
        ("graphpipe/http", "trtis/grpc", "parameters with a place of their own", Outcome.DROPPED),
        ("oip/http", "trtis/grpc", "sequence, id a text", Outcome.REFUSED),
        ("oip/http", "grps/grpc", "sequence, id a text", Outcome.DROPPED),
        ("oip/http", "grps/grpc", "requested outputs", Outcome.HERE),
        ("grps/grpc", "oip/http", "requested outputs", Outcome.ABSENT),
        ("trtis/grpc", "graphpipe/http", "classification", Outcome.HERE),
        ("oip/grpc", "grps/brpc", "several answers", Outcome.REFUSED),
        ("grps/http", "oip/grpc", "several answers", Outcome.CARRIED),
        ("oip/grpc", "onnxruntime", "shared memory", Outcome.HERE),
    ],
)
def test_features(caller: str, target: str, name: str, outcome: Outcome) -> None:
    assert feature(caller, target, name).outcome is outcome


def test_an_error_goes_through_both_ends() -> None:
    assert reported(callers()["oip/http"], ErrorCode.UNREPRESENTABLE) is ErrorCode.INVALID_TENSOR
    assert reported(targets()["python"], ErrorCode.UNREPRESENTABLE) is ErrorCode.UNREPRESENTABLE


@pytest.mark.parametrize(
    ("target", "datatype", "batch", "needed"),
    [
        ("oip/grpc", Datatype.BF16, 8, False),
        ("trtis/grpc", Datatype.FP32, 8, False),
        ("trtis/grpc", Datatype.BF16, 0, True),
        ("graphpipe/http", Datatype.FP32, 0, False),
        ("graphpipe/http", Datatype.FP32, 8, True),
        ("graphpipe/http", Datatype.BOOL, 0, True),
        ("grps/grpc", Datatype.FP32, 0, True),
        ("python", Datatype.BF16, 8, False),
    ],
)
def test_which_signatures_are_to_be_stated(target: str, datatype: Datatype, batch: int, needed: bool) -> None:
    spec = (TensorSpec("x", datatype, (-1, 2)),)
    assert stated(targets()[target], Signature(spec, spec, batch)) is needed


def test_a_verdict_in_words() -> None:
    verdict = Verdict(Outcome.DROPPED, by="grps/http", note="NaN stays NaN")
    assert str(verdict) == "dropped, by grps/http; NaN stays NaN"
    assert Outcome.DROPPED.loses and not Outcome.HERE.loses


def test_a_dialect_that_is_added_is_in_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    capability = Capability(exact=frozenset({Datatype.INT8}), widened={Datatype.BOOL: Datatype.INT8}, ids="")
    bindings = DIALECTS["oip"].bindings.values()
    new = Dialect.of(*(replace(each, dialect="new", capability=capability) for each in bindings))
    monkeypatch.setitem(DIALECTS, "new", new)
    assert matrix().keys() >= {("new/http", "python"), ("oip/grpc", "new/grpc"), ("new/grpc", "new/http")}
    assert tensor("new/http", "python", "BOOL")[0] == "widened to INT8, by new/http"
    assert tensor("oip/grpc", "new/grpc", "FP32")[0] == "refused (UNREPRESENTABLE), by new/grpc"
    assert feature("oip/grpc", "new/grpc", "id, any text").outcome is Outcome.DROPPED
    assert "## From new/http" in page()
