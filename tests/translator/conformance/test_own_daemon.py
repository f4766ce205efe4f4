"""The kit finds nothing wrong with our own daemon, in any dialect over any transport."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import Datatype
from interlingua.translator.conformance.kit import CheckStatus, Effort, checks_of
from interlingua.translator.conformance.session import examine
from interlingua.translator.conformance.wires import wires

EFFORT = Effort(examples=8, secs=10)

SIMPLE = {
    side: [
        {"name": f"{side[:-1].upper()}{place}", "datatype": "INT32", "shape": [-1, 16]} for place in (0, 1)
    ]
    for side in ("inputs", "outputs")
} | {"max_batch_size": 8}

CELLS = [
    *((*name.split("/"), name.split("/")[1]) for name in wires()),
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
    _, results = examine(dialect, transport, served[listener], [model], signature, EFFORT)
    spoken = []
    for result in results:
        assert not result.status.bad, (
            f"{result.check.name}: {result.reason}\n{result.request}\n{result.reply}"
        )
        if result.status is not CheckStatus.SKIPPED:
            spoken.append(result.check.name)
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
        assert {"answers/exact-values", "malformed/changed", "graphpipe-tcp/pipelined-in-order"} <= set(
            spoken
        )
        return
    model = "simple-1" if cell[0] == "grps" else "simple"
    spoken = passes(served, cell, model, signature if cell[0] == "grps" else None)
    if DIALECTS[cell[0]].bindings[cell[1]].capability.batch_limits or cell[0] == "grps":
        assert {"answers/exact-values", "answers/rows-in-any-order", "malformed/changed"} <= set(spoken)
    else:
        assert cell[0] == "graphpipe" or {"answers/exact-values", "malformed/changed"} <= set(spoken)


OIP = [cell for cell in CELLS if cell[0] == "oip"]
VERSION_1 = [cell for cell in CELLS if cell[0] == "trtis"]


def rules(group: str, *more: str) -> set[str]:
    """The names of the rules of a group, but for those of ``more``."""
    return {check.name for check in checks_of(wires()["oip/grpc"]) if check.name.startswith(f"{group}/")} - {
        f"{group}/{name}" for name in more
    }


@pytest.mark.parametrize("cell", [*OIP, *VERSION_1], ids="-".join)
def test_sequences(served: dict[str, str], cell: tuple[str, str, str]) -> None:
    spoken = set(passes(served, cell, "total"))
    assert rules("sequences") <= spoken
    # a request alone is a sequence too
    assert {"answers/exact-values", "answers/at-once", "refusals/batch-too-large"} <= spoken


def objects_of_this_process() -> list[Path]:
    """Shared memory objects that the kit made here: their numbers begin with the process id."""
    found = Path("/dev/shm").glob("conformance_*")
    return [path for path in found if int(path.name.split("_")[1]) >> 20 == os.getpid() & 0x3FF]


@pytest.mark.parametrize("cell", [*OIP, *VERSION_1], ids="-".join)
def test_classes_and_shared_memory(served: dict[str, str], cell: tuple[str, str, str]) -> None:
    spoken = set(passes(served, cell, "digits"))
    assert rules("classification", "unordered") | rules("shared-memory") <= spoken
    assert not objects_of_this_process()
    _, (result,) = examine(*cell[:2], served[cell[2]], ["identity_fp16"], None, EFFORT, only="unordered")
    assert result.status is CheckStatus.PASSED, result.reason


def test_bytes_in_shared_memory(served: dict[str, str]) -> None:
    for cell in (*OIP, *VERSION_1):
        _, results = examine(
            *cell[:2], served[cell[2]], ["identity_bytes"], None, EFFORT, only="shared-memory/"
        )
        assert {result.status for result in results} == {CheckStatus.PASSED}, cell


@pytest.mark.parametrize("cell", [cell for cell in (*OIP, *VERSION_1) if cell[1] == "grpc"], ids="-".join)
@pytest.mark.parametrize("model", ["simple", "words", "total"])
def test_streams(served: dict[str, str], cell: tuple[str, str, str], model: str) -> None:
    _, results = examine(*cell[:2], served[cell[2]], [model], None, EFFORT, only="stream")
    found = {result.check.name: result for result in results}
    assert not [result.reason for result in found.values() if result.status.bad]
    left_out = {name for name, result in found.items() if result.status is CheckStatus.SKIPPED}
    # version 1 has no model that answers more than once
    right = rules("streams", "no-requests") if (cell[0], model) == ("trtis", "words") else set()
    assert left_out == (right or ({"streams/as-without"} if model == "words" else set()))


def test_the_last_answer_of_a_stream(served: dict[str, str]) -> None:
    for model in ("simple", "words"):
        _, (result,) = examine("oip", "grpc", served["grpc"], [model], None, EFFORT, only="last-answer")
        assert result.status is CheckStatus.PASSED, result.reason


@pytest.mark.parametrize("cell", [("grps", "http"), ("grps", "grpc")], ids="-".join)
def test_streams_of_grps(served: dict[str, str], cell: tuple[str, str], tmp_path: Path) -> None:
    signature = tmp_path / "words.yaml"
    sides = {"inputs": ["TEXT"], "outputs": ["WORD"]}
    tensors = {
        side: [{"name": name, "datatype": "BYTES", "shape": [1]} for name in names]
        for side, names in sides.items()
    }
    signature.write_text(yaml.safe_dump(tensors))
    _, results = examine(*cell, served[cell[1]], ["words-1"], signature, EFFORT, only="streams/")
    found = {result.check.name: (result.status, result.reason) for result in results}
    spoken = {name for name, (status, _) in found.items() if status is CheckStatus.PASSED}
    assert spoken == {f"streams/{name}" for name in ("ends", "same-twice", "at-once", "refused")}, found


@pytest.mark.parametrize("datatype", [each.value for each in Datatype])
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell[2] != "unix"], ids="-".join)
def test_every_datatype(
    served: dict[str, str], cell: tuple[str, str, str], datatype: str, tmp_path: Path
) -> None:
    dialect, transport, listener = cell
    if not DIALECTS[dialect].bindings[transport].capability.carries(Datatype(datatype)):
        pytest.skip(f"{dialect} has no {datatype}")
    signature = tmp_path / "identity.yaml"
    signature.write_text(yaml.safe_dump(identity(datatype)))
    model = f"identity_{datatype.lower()}" + ("-1" if dialect == "grps" else "")
    if transport == "tcp":  # an address has one model
        listener, model = f"tcp_{model}", ""
    # GraphPipe has no BOOL, so its metadata cannot tell of one
    told = dialect != "grps" and (dialect, datatype) != ("graphpipe", "BOOL")
    file = None if told else signature
    _, results = examine(
        dialect, transport, served[listener], [model], file, EFFORT, only="answers/exact-values"
    )
    [result] = results
    assert result.status is CheckStatus.PASSED, result.reason
