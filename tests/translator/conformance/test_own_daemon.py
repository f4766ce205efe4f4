"""The kit finds nothing wrong with our own daemon, in any dialect over any transport."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from schemas import Datatype
from translator.conformance.kit import Effort, Verdict
from translator.conformance.session import examine
from translator.conformance.wires import WIRES

EFFORT = Effort(examples=8, secs=10)

SIMPLE = {
    side: [
        {"name": f"{side[:-1].upper()}{place}", "datatype": "INT32", "shape": [-1, 16]} for place in (0, 1)
    ]
    for side in ("inputs", "outputs")
} | {"max_batch_size": 8}

CELLS = [
    *((dialect, transport, transport) for dialect, transport in WIRES),
    ("graphpipe", "http", "unix"),
    ("grps", "http", "cpp"),
]


def identity(datatype: str) -> dict[str, object]:
    return {
        side: [{"name": f"{side[:-1].upper()}0", "datatype": datatype, "shape": [-1]}]
        for side in ("inputs", "outputs")
    }


def passes(
    served: dict[str, str], cell: tuple[str, str, str], model: str, signature: Path | None = None
) -> list[str]:
    """The names of the checks that say something. Fails for one that finds something."""
    dialect, transport, listener = cell
    _, outcomes = examine(dialect, transport, served[listener], [model], signature, EFFORT)
    spoken = []
    for outcome in outcomes:
        assert not outcome.verdict.bad, (
            f"{outcome.check.name}: {outcome.reason}\n{outcome.request}\n{outcome.reply}"
        )
        if outcome.verdict is not Verdict.SKIPPED:
            spoken.append(outcome.check.name)
    return spoken


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_sums_and_differences(served: dict[str, str], cell: tuple[str, str, str], tmp_path: Path) -> None:
    signature = tmp_path / "simple.yaml"
    signature.write_text(yaml.safe_dump(SIMPLE))
    if cell[2] == "unix":
        spoken = passes(served, cell, "")
        assert "answers/same-twice" in spoken
        return
    if cell[1] == "tcp":
        spoken = passes(served, cell, "")
        assert {"answers/exact-values", "malformed/changed", "graphpipe-tcp/pipelined-in-order"} <= set(spoken)
        return
    model = "simple-1" if cell[0] == "grps" else "simple"
    spoken = passes(served, cell, model, signature if cell[0] == "grps" else None)
    assert {"answers/exact-values", "answers/rows-in-any-order", "malformed/changed"} <= set(spoken) or (
        cell[0] == "graphpipe"
    )


@pytest.mark.parametrize("datatype", [each.value for each in Datatype])
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell[2] != "unix"], ids="-".join)
def test_every_datatype(
    served: dict[str, str], cell: tuple[str, str, str], datatype: str, tmp_path: Path
) -> None:
    dialect, transport, listener = cell
    if datatype not in CARRIED[dialect]:
        pytest.skip(f"{dialect} has no {datatype}")
    signature = tmp_path / "identity.yaml"
    signature.write_text(yaml.safe_dump(identity(datatype)))
    model = f"identity_{datatype.lower()}" + ("-1" if dialect == "grps" else "")
    if transport == "tcp":  # an address has one model
        listener, model = f"tcp_{model}", ""
    # GraphPipe has no BOOL, so its metadata cannot tell of one
    told = dialect != "grps" and (dialect, datatype) != ("graphpipe", "BOOL")
    file = None if told else signature
    _, outcomes = examine(
        dialect, transport, served[listener], [model], file, EFFORT, only="answers/exact-values"
    )
    [outcome] = outcomes
    assert outcome.verdict is Verdict.PASSED, outcome.reason


CARRIED = {
    "oip": {each.value for each in Datatype},
    "trtis": {each.value for each in Datatype} - {"BF16"},
    "graphpipe": {each.value for each in Datatype} - {"BF16"},
    "grps": {each.value for each in Datatype} - {"UINT64"},
}
