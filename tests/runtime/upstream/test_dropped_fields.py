"""What an upstream's dialect has no place for is counted by kind, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.runtime.upstream.dropped_fields import DroppedFields
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, Sequence, Tensor
from tests.loopback import behind, echoing, serving
from tests.strategies import signature_of

X = Tensor.from_numpy("x", np.array([1], np.int32))
SIGNATURE = signature_of([X], [X.renamed("y")])
FULL = {
    "id": "blue",
    "parameters": {"tag": "a", "level": 3},
    "sequence": Sequence(7, start=True),
    "timeout_us": 5_000_000,
}


def counting(dialect: str, strict: bool = False) -> DroppedFields:
    return DroppedFields(dialect, DIALECTS[dialect].bindings["http"].capability, strict)


@pytest.mark.parametrize(
    ("dialect", "counts"),
    [
        ("oip", {"id": 0, "parameter": 0, "sequence": 0, "priority": 0}),
        ("trtis", {"id": 1, "parameter": 2, "sequence": 0, "priority": 0}),
        ("graphpipe", {"id": 1, "parameter": 2, "sequence": 1, "priority": 1}),
        ("grps", {"id": 1, "parameter": 2, "sequence": 1, "priority": 1}),
    ],
)
async def test_it_is_counted_by_kind(dialect: str, counts: dict[str, int]) -> None:
    counted = counting(dialect)
    model = behind(
        serving(echoing({"m": SIGNATURE}), dialect),
        dialect,
        "http",
        "m",
        declared=SIGNATURE,
        dropped_fields=counted,
    )
    answer = await model.infer(InferRequest("m", (X,), **FULL))  # type: ignore[arg-type]
    assert answer.outputs == (X.renamed("y"),) and answer.id == "blue"
    assert counted.counts == counts


async def test_a_strict_upstream_refuses_all_but_the_id() -> None:
    counted = counting("grps", strict=True)
    model = behind(
        serving(echoing({"m": SIGNATURE}), "grps"),
        "grps",
        "http",
        "m",
        declared=SIGNATURE,
        dropped_fields=counted,
    )
    await model.infer(InferRequest("m", (X,), id="blue"))
    for field, words in {
        "parameters": "request parameter 'tag'",
        "sequence": "the sequence 7",
        "timeout_us": "a time in the queue",
    }.items():
        asked = InferRequest("m", (X,), context=Context(), **{field: FULL[field]})  # type: ignore[arg-type]
        with pytest.raises(InferenceError) as caught:
            await model.infer(asked)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE
        assert caught.value.message == f"dialect 'grps' has no place for {words}; upstream 'there' is strict"
    assert counted.counts == {"id": 1, "parameter": 0, "sequence": 0, "priority": 0}
    failed = sum(each.failed.count for v in model.statistics.values() for each in v.by_batch_size.values())
    assert failed == 3


@pytest.mark.parametrize("dialect", ["oip", "trtis", "grps", "graphpipe", "local"])
async def test_a_config_of_bytes_is_for_graphpipe_alone(dialect: str) -> None:
    local = echoing({"m": SIGNATURE})
    target = local["m"]
    if dialect != "local":
        target = behind(
            serving(local, dialect),
            dialect,
            "http",
            "m",
            declared=SIGNATURE,
            dropped_fields=counting(dialect),
        )
    request = InferRequest("m", (X,), parameters={"config": b"\xff"})
    # the model at the end of a GraphPipe server is local, too
    with pytest.raises(InferenceError, match="request parameter 'config' is not UTF-8 text") as caught:
        await target.infer(request)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
    of = {"local": "model 'm'", "graphpipe": "model 'm'"}.get(dialect, f"dialect '{dialect}'")
    assert of in caught.value.message
