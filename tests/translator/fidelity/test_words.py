"""``interlingua fidelity``, and the page that has all of it."""

from __future__ import annotations

import json

import pytest

from interlingua.translator.cli import main
from interlingua.translator.fidelity.features import FEATURES
from interlingua.translator.fidelity.page import page
from interlingua.translator.fidelity.parties import callers, targets
from tests.e2e.daemon import ROOT


def reported(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["fidelity", *argv])
    return code, capsys.readouterr().out


def test_all_paths_in_brief(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = reported(capsys)
    lines = text.splitlines()
    assert code == 0 and len(lines) == len(callers()) * len(targets())
    (line,) = (line for line in lines if line.startswith("oip/http -> trtis/grpc "))
    assert line.endswith("13 exact; refused BF16")


def test_one_path_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = reported(capsys, "--from", "grps/http", "--to", "trtis/http")
    assert code == 0 and text.startswith("grps/http -> trtis/http\n")
    said = {line[:42].strip(): line[42:].strip() for line in text.splitlines()[1:] if line}
    assert said["INT8"] == "exact"
    assert said["UINT16"] == "widened to INT32, by grps/http"
    assert said["UINT64, answered"] == "refused (MODEL_FAILED), by grps/http"
    assert said.keys() >= FEATURES.keys()


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = reported(capsys, "--to", "python", "--json")
    paths = json.loads(text)
    assert code == 0 and [path["from"] for path in paths] == list(callers())
    (oip,) = (path for path in paths if path["from"] == "oip/grpc")
    assert oip["to"] == "python" and oip["tensors"]["BF16"] == {
        "sent": {"outcome": "exact"},
        "answered": {"outcome": "exact"},
    }
    assert oip["features"]["classification"]["outcome"] == "done here"


def test_check_says_whether_anything_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(capsys, "--from", "oip/grpc", "--to", "oip/grpc", "--check")[0] == 0
    assert reported(capsys, "--from", "oip/grpc", "--to", "python", "--check")[0] == 0
    assert reported(capsys, "--from", "oip/grpc", "--to", "graphpipe/http", "--check")[0] == 1
    assert reported(capsys, "--from", "oip/grpc", "--check")[0] == 1


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_an_unknown_end(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert main(["fidelity", option, "oip/htp"]) == 2
    assert f"{option}: unknown end 'oip/htp'; did you mean 'oip/http'?" in capsys.readouterr().err


def test_a_backend_calls_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fidelity", "--from", "python"]) == 2


def test_the_page_is_up_to_date() -> None:
    """`INTERLINGUA_WRITE=1 pytest tests/e2e/test_matrix.py` writes it."""
    assert (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8") == page()
