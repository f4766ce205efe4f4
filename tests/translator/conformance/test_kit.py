"""The command, its reports, and the same inside pytest."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest

from interlingua.protocols.registry import bindings
from interlingua.schemas import Datatype, InferRequest, Signature, Tensor, TensorSpec
from interlingua.translator.cli import main
from interlingua.translator.conformance.exchange import shown_request
from interlingua.translator.conformance.kit import CheckResult, CheckStatus, Effort, checks_of
from interlingua.translator.conformance.report import as_junit, as_markdown
from interlingua.translator.conformance.session import examine, server_under_test
from interlingua.translator.conformance.wires import wires
from tests.e2e.daemon import ROOT
from tests.translator.conformance.faults import wrong_value
from tests.translator.conformance.relay import Passing, relay

INT32 = np.array([70000, -2, 3], np.int32)

QUICK = ("--examples", "5")


def conformance(url: str, *more: str, dialect: str = "oip", transport: str = "http") -> int:
    return main(["conformance", "--dialect", dialect, "--transport", transport, "--url", url, *QUICK, *more])


def one_failure(address: str) -> CheckResult:
    _, results = examine("oip", "http", address, ["simple"], effort=Effort(10), only="exact")
    [result] = results
    assert result.status is CheckStatus.FAILED
    return result


def test_a_right_server_exits_with_0(served: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance(served["http"], "--model", "simple", "--only", "answers/exact") == 0
    assert capsys.readouterr().out.splitlines() == ["ok   simple answers/exact-values", "", "1 passed"]


def test_a_wrong_server_exits_with_1_and_shows_why(
    served: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit, page = tmp_path / "junit.xml", tmp_path / "page.md"
    with relay(served["http"], wrong_value) as address:
        files = ("--junit", str(junit), "--markdown", str(page))
        assert conformance(address, "--model", "simple", "--only", "exact", *files) == 1
    shown = capsys.readouterr().out
    assert "FAIL simple answers/exact-values: OUTPUT0 is the sum of INPUT0 and INPUT1, but 1 of 16" in shown
    assert "curl -i -X POST" in shown and address in shown
    [suite] = Xml.fromstring(junit.read_bytes())
    assert suite.attrib | {"time": ""} == {
        "name": "oip-http", "tests": "1", "failures": "1", "skipped": "0", "errors": "0", "time": "",
    }  # fmt: skip
    assert suite[0].attrib["name"] == "answers/exact-values" and "curl" in (suite[0][0].text or "")
    assert "| answers/exact-values |" in page.read_text() and "**no**" in page.read_text()


def test_a_failure_is_shrunk(served: dict[str, str]) -> None:
    with relay(served["http"], wrong_value) as address:
        result = one_failure(address)
    # one row of zeros is the smallest request there is
    assert '"shape":[1,16]' in bytes.fromhex(result.request.split()[1]).decode(errors="replace")
    assert bytes.fromhex(result.request.split()[1]).endswith(bytes(128))


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("xxd")), reason="needs curl and xxd")
@pytest.mark.parametrize(
    ("dialect", "transport", "sign"),
    [
        ("oip", "http", b"[70000,-2,3]"),
        ("trtis", "http", INT32.tobytes()),
        ("graphpipe", "http", INT32.tobytes()),
        ("grps", "http", b"[70000,-2,3]"),
        ("oip", "grpc", b"grpc-status:0"),
        ("trtis", "grpc", b"grpc-status:0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_shown_can_be_run(served: dict[str, str], dialect: str, transport: str, sign: bytes) -> None:
    model = "identity_int32-1" if dialect == "grps" else "identity_int32"
    signature = Signature(
        (TensorSpec("INPUT0", Datatype.INT32, (-1,)),), (TensorSpec("OUTPUT0", Datatype.INT32, (-1,)),)
    )
    with server_under_test(dialect, transport, served[transport], found=False) as server:
        server.signature = signature
        request = InferRequest(model, (Tensor.from_numpy("INPUT0", INT32),))
        command = shown_request(transport, server.encoded(request), served[transport])
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=20, check=True)
    shown = done.stdout + done.stderr
    assert sign in shown or sign in b"".join(shown.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dialect", "oip", "--transport", "brpc"), "transport"),
        (("--dialect", "opi", "--transport", "http"), "oip"),
        (("--dialect", "oip", "--transport", "http", "--only", "nothing"), "nothing"),
        (("--dialect", "oip", "--transport", "http", "--signature", "no/file"), "no/file"),
    ],
)
def test_wrong_usage_exits_with_2(
    served: dict[str, str], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main(["conformance", "--url", served["http"], "--model", "simple", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("text", ["inputs: 3", "inputs: [", "{inputs: [], outputs: []}", "more: 1"])
def test_a_bad_signature_exits_with_2(
    served: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "signature.yaml"
    file.write_text(text)
    assert conformance(served["http"], "--model", "simple", "--signature", str(file)) == 2
    assert "signature.yaml" in capsys.readouterr().err


def test_no_server_there_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance("127.0.0.1:1", "--model", "simple") == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


def test_models_are_found(served: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance(served["grpc"], "--only", "probes/model-ready", transport="grpc") == 0
    shown = capsys.readouterr().out
    assert "ok   digits " in shown and "ok   identity_bytes " in shown


def test_a_model_that_is_not_there_fails(served: dict[str, str]) -> None:
    assert conformance(served["http"], "--model", "nobody", "--only", "probes/") == 1


def test_without_a_signature_little_is_left(served: dict[str, str]) -> None:
    _, results = examine("grps", "http", served["http"], ["simple-1"], effort=Effort(3))
    found = {result.check.name: result for result in results}
    assert found["probes/live"].status is CheckStatus.PASSED
    assert found["answers/same-twice"].status is CheckStatus.SKIPPED
    assert "signature" in found["answers/same-twice"].reason


def test_an_unsteady_failure_is_reported_as_such(served: dict[str, str]) -> None:
    def once(passing: Passing) -> None:
        if passing.good and "struck" not in passing.memory and passing.number > 8:
            passing.memory["struck"] = True
            wrong_value(passing)

    with relay(served["http"], once) as address:
        _, results = examine("oip", "http", address, ["simple"], effort=Effort(10), only="exact")
        [result] = results
    assert result.status is CheckStatus.UNSTEADY and result.status.bad
    assert "elements are not" in result.reason


def test_reports_of_nothing_are_well_formed() -> None:
    assert Xml.fromstring(as_junit([])).tag == "testsuites"
    assert as_markdown([]).startswith(b"# Conformance")


def test_every_rule_is_on_the_page() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    for wire in wires().values():
        for check in checks_of(wire):
            assert f"| {check.name} | {check.rule} |" in page


def test_every_dialect_can_be_judged() -> None:
    assert wires().keys() == bindings().keys()


def test_names_of_checks_differ() -> None:
    for wire in wires().values():
        names = [check.name for check in checks_of(wire)]
        assert len(set(names)) == len(names)


def in_pytest(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_inside_pytest(served: dict[str, str], tmp_path: Path) -> None:
    shown = in_pytest(
        tmp_path,
        *(
            "-p",
            "interlingua.translator.conformance.plugin",
            "--pyargs",
            "interlingua.translator.conformance.test_conformance",
        ),
        *("--conformance-dialect", "oip", "--conformance-transport", "http"),
        *("--conformance-url", served["http"], "--conformance-model", "simple", "-k", "exact or probes"),
    )
    assert "9 passed" in shown and "failed" not in shown, shown


def test_inside_a_suite_of_its_own(served: dict[str, str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    loading, tests = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_mine.py").write_text(tests)
    with relay(served["http"], wrong_value) as address:
        port = address.rpartition(":")[2]
        (tmp_path / "conftest.py").write_text(
            f"{loading}\nimport pytest, types\n"
            "@pytest.fixture(scope='session')\n"
            f"def my_server():\n    return types.SimpleNamespace(port={port})\n"
        )
        shown = in_pytest(
            tmp_path,
            *("--conformance-dialect", "oip", "--conformance-transport", "http"),
            *("--conformance-model", "simple", "-k", "exact"),
        )
    assert "1 failed" in shown and "but 1 of 16 elements are not" in shown and "curl" in shown, shown
