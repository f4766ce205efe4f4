"""The command line: what it lists, how it ends, what ``check`` says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from interlingua.translator.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "pydantic", "yaml", "aiohttp", "grpc", "asyncio", "onnxruntime")


def ended(*argv: str) -> int:
    """The exit code of a command line, however it ends."""
    try:
        return main(argv)
    except SystemExit as end:
        return int(end.code or 0)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--help") == 0
    shown = capsys.readouterr().out
    for name, module in COMMANDS.items():
        assert name in shown
        assert module.HELP in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_documented(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(name, "--help") == 0
    shown = capsys.readouterr().out
    page = (ROOT / "docs" / "cli.md").read_text()
    assert f"## interlingua {name}" in page
    options = {word.strip(",[]()") for word in shown.split() if word.lstrip("[(").startswith("-")}
    assert options > {"-h", "--help"}
    for option in options - {"-h", "--help", "--config"}:
        assert f"`{option}" in page or f" {option} " in page, option


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--version") == 0
    assert capsys.readouterr().out == f"interlingua {version('interlingua')}\n"


def test_an_absent_server_is_reported_once() -> None:
    command = ["infer", "--dialect", "oip", "--transport", "http", "--url", "unix:no.sock", "--model", "m"]
    ran = subprocess.run(
        [sys.executable, "-m", "interlingua", *command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    (line,) = ran.stderr.splitlines()
    assert line.startswith("UNAVAILABLE: the upstream at unix:no.sock cannot be reached")
    assert (ran.returncode, ran.stdout) == (1, "")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys, interlingua.translator.cli as cli\n"
        "try: cli.main(['infer', '--help'])\n"
        f"except SystemExit: sys.exit(','.join(m for m in {HEAVY} if m in sys.modules) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("unknown",),
        ("check",),
        ("infer", "--dialect", "oip"),
        (
            "infer",
            *[
                "--dialect",
                "oip",
                "--transport",
                "http",
                "--url",
                "a:1",
                "--model",
                "m",
                "--json",
                "--npz",
                "f",
            ],
        ),
    ],
)
def test_wrong_usage(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(*argv) == 2
    assert "usage: interlingua" in capsys.readouterr().err


def test_check_sums_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "echo"):
        shutil.copytree(ROOT / "examples" / "models" / "digits" / "1", tmp_path / "models" / name / "1")
    (tmp_path / "c.yaml").write_text(
        """\
listeners:
  - {listen: "127.0.0.1:0", transport: http, dialects: [graphpipe]}
  - {listen: "unix:g.sock", transport: http, dialects: [graphpipe], default_model: echo}
model_repository: [{path: models}]
default_model: digits
models:
  echo: {backend: onnxruntime, path: models/echo}
  far: {upstream: old, remote_model: m}
  only: {upstream: old, remote_model: ""}
upstreams:
  old: {dialect: graphpipe, transport: http, urls: ["a:1", "b:1"]}
routes:
  - {match: {model: "f*", dialect: graphpipe}, to: far}
  - {split: [{to: far, weight: 9}, {to: only}], fallback: echo, mirror: {to: digits, percent: 12.5}}
tap: {path: run/t.rec}
admin: {listen: ":8002"}
"""
    )
    assert main(["check", "-c", "c.yaml"]) == 0
    assert capsys.readouterr().out == (
        "listeners (2):\n"
        "  127.0.0.1:0 over http: graphpipe; default model digits\n"
        "  unix:g.sock over http: graphpipe; default model echo\n"
        "models (4):\n"
        "  digits: repository models\n"
        "  echo: backend onnxruntime, models/echo\n"
        "  far: upstream old (graphpipe over http at a:1, b:1), model m there\n"
        "  only: upstream old (graphpipe over http at a:1, b:1), its default model there\n"
        "routes (2):\n"
        "  model f*, dialect graphpipe -> far\n"
        "  model * -> far (weight 9), only (weight 1); fallback echo; mirror digits (12.5 %)\n"
        "tap: * to run/t.rec\n"
        "admin: :8002\n"
    )


@pytest.mark.parametrize(
    ("listen", "options", "permitted"),
    [
        (":0", "", "control, shared_memory, logging, server"),
        ("0.0.0.0:0", "", "control, shared_memory, logging, server"),
        (
            "[::]:0",
            ", allow: {control: [], health: [local, 10.0.0.0/8]}",
            "health, shared_memory, logging, server",
        ),
        ("10.1.2.3:0", ", allow: {shared_memory: [], logging: [], server: []}", "control"),
        (
            "some.host:0",
            ", allow: {control: [anyone], shared_memory: [], logging: [], server: [local]}",
            "server",
        ),
        (":0", ", allow: {control: [anyone], shared_memory: [], logging: [], server: [10.1.2.3]}", ""),
        (":0", ", trusted_proxies: [127.0.0.1]", ""),
        ("127.0.0.1:0", "", ""),
        ("[::1]:0", "", ""),
        ("localhost:0", "", ""),
        ("unix:x.sock", "", ""),
    ],
)
def test_check_warns_of_local_callers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str, options: str, permitted: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"listeners:\n  - {{listen: '{listen}', transport: http{options}}}\nadmin: {{listen: ':0'}}\n"
    )
    assert main(["check", "-c", str(path)]) == 0
    warning = (
        f"{path}:2: listeners[0]: warning: permits {permitted} to local callers; a proxy on this machine makes "
        "all its clients local, unless trusted_proxies names it\n"
    )
    assert capsys.readouterr().err == (warning if permitted else "")
    path.write_text(
        "listeners: [{listen: '[::1]:0', transport: http}]\nadmin: {listen: ':0', allow: {statistics: [local]}}\n"
    )
    assert main(["check", "-c", str(path)]) == 0
    assert capsys.readouterr().err.startswith(
        f"{path}:2: admin: warning: permits statistics to local callers;"
    )


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_broken_configuration(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("listeners: [{listen: x, transport: http}]\nserver: {nam: y}\n")
    assert main([command, "-c", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first.startswith(f"{path}:1: listeners[0].listen: 'x' is not an address")
    assert second.startswith(f"{path}:2: server.nam: unknown key 'nam'; did you mean 'name'?")


def test_a_missing_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", f"{tmp_path}/c.yaml"]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/c.yaml: cannot be read: No such file or directory\n"


def test_an_interrupt_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["check"], "run", interrupted)
    assert main(["check", "-c", "c.yaml"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("argv", [("check", "-c", "config.example.yaml"), ("fidelity",)])
def test_a_reader_that_has_enough_is_left_quietly(argv: tuple[str, ...]) -> None:
    """As in `interlingua check -c FILE | head -1`: nobody reads on, and nobody is told of it."""
    ours, theirs = os.pipe()
    os.close(ours)
    ran = subprocess.run(
        [sys.executable, "-m", "interlingua", *argv],
        cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    os.close(theirs)
    assert (ran.returncode, ran.stderr) == (141, b"")
