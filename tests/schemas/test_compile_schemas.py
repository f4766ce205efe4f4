"""The generated artefacts are those of the checked-in contracts, and the check would notice if not."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "compile_schemas.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def generated(script: dict[str, Any], tmp_path: Path) -> Path:
    script["generate"](tmp_path)
    return tmp_path


def test_nothing_is_stale(script: dict[str, Any], generated: Path) -> None:
    assert script["differences"](generated) == []


def test_what_is_stale_is_named(script: dict[str, Any], generated: Path) -> None:
    changed = generated / "schemas/oip/health.desc"
    changed.write_bytes(changed.read_bytes() + b"\0")
    folder = "tests/oracle/graphpipe_fbs/graphpipe"
    (generated / folder / "Tensor.py").unlink()
    (generated / folder / "New.py").touch()
    assert script["differences"](generated) == [
        "schemas/oip/health.desc",
        f"{folder}/New.py",
        f"{folder}/Tensor.py",
    ]


def test_generating_twice_gives_the_same(script: dict[str, Any], generated: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (generated / "tests/oracle/graphpipe_fbs/graphpipe/Left.py").touch()
    script["generate"](tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_no_comment_travels_in_a_descriptor_set(generated: Path) -> None:
    assert b"Triton" not in (generated / "schemas/oip/grpc_service.desc").read_bytes()


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_command(
    script: dict[str, Any],
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main = script["main"]
    called: list[Path] = []
    monkeypatch.setattr("sys.argv", ["compile_schemas.py", *arguments])
    monkeypatch.setitem(main.__globals__, "generate", called.append)
    monkeypatch.setitem(main.__globals__, "differences", lambda folder: ["schemas/oip/x.desc"])
    assert main() == (1 if arguments else 0)
    assert len(called) == 1
    assert (called[0] == SCRIPT.parents[1]) is not bool(arguments)
    assert ("schemas/oip/x.desc" in capsys.readouterr().err) is bool(arguments)
