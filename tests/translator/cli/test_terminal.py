"""What a person sees on a terminal: suggestions, colours, progress; a pipe gets none of them."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from interlingua.translator.cli import COMMANDS, main, parser
from interlingua.translator.cli.colours import painted
from interlingua.translator.progress import StatusLine
from tests.translator.cli.serving import ROOT, serve

SGR = re.compile(r"\x1b\[[0-9;]*m")
LINE = "\r\x1b[K"


def on_terminal(*arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code of a command whose output and errors are a terminal, and what it shows."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "interlingua", *arguments]
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=theirs, stderr=theirs, env={**variables, "TERM": "xterm", **environment}
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # the terminal of a process that has ended
            pass
        os.close(ours)
        return process.wait(60), shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("chek", "-c", "f"), "unknown command 'chek'; did you mean 'check'? (allowed: "),
        (("check", "--confg", "f"), "unknown option '--confg'; did you mean '--config'? (allowed: "),
        (("infer", "--dialct=oip"), "unknown option '--dialct'; did you mean '--dialect'? (allowed: "),
        (("--verison",), "unknown option '--verison'; did you mean '--version'? (allowed: "),
        (("mirror", "reprot", "--url", "a:1"), "invalid choice: 'reprot'"),
    ],
)
def test_suggestions(words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    usage, _, message = capsys.readouterr().err.partition("error: ")
    assert usage.startswith("usage: interlingua")
    assert error in message


def test_what_argparse_accepts() -> None:
    assert parser().parse_args(["check", "--conf", "f"]).config == "f"  # the beginning of an option
    words = ["convert", "f", "--to", "oip/http", "--header", "--x: y"]
    assert parser().parse_args(words).header == ["--x: y"]  # a value with a space
    assert parser().parse_args(["replay", "--di=oip", "--tr=http", "--url=a:1", "--", "--f"]).files == ["--f"]


def test_colours_on_a_terminal_alone() -> None:
    code, shown = on_terminal("check", "-c", "nowhere.yaml", "--oops")
    assert (code, bool(SGR.search(shown))) == (2, True)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_terminal("check", "-c", "nowhere.yaml", "--oops", **environment)
        assert plain == (2, SGR.sub("", shown))
    assert painted("a", "red", io.StringIO()) == "a"


def test_progress_of_loading() -> None:
    code, shown = on_terminal("check", "-c", "config.example.yaml", "--load")
    assert code == 0
    lines = [part.partition("\n")[0] for part in shown.split(LINE)[1:]]
    assert lines[0] == "loading models: 0 done, now add_sub"
    assert lines[-1] == ""  # what is left behind is the result
    assert any(line.startswith("loading models: 24 done") for line in lines)


def test_a_status_line_is_for_terminals() -> None:
    stream = io.StringIO()
    with StatusLine(stream) as line:
        line.show("1 of 2")
        line.show_often("2 of 2")
    assert stream.getvalue() == ""


def test_progress_and_json_of_conformance() -> None:
    with serve("--example") as daemon:
        where = ["--dialect=oip", "--transport=http", f"--url={daemon.every}", "--model=digits"]
        what = ["--only=probes/", "--examples=1"]
        code, shown = on_terminal("conformance", *where, *what)
        assert code == 0
        assert f"{LINE}0 done, now digits probes/" in shown
        assert "\x1b[32mok  \x1b[0m digits probes/live\n" in shown
        command = [sys.executable, "-m", "interlingua", "conformance", *where, *what, "--json"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    document = orjson.loads(ran.stdout)
    assert (document["dialect"], document["transport"]) == ("oip", "http")
    assert document["summary"]["failed"] == 0
    statuses = {each["check"]: each["status"] for each in document["results"]}
    assert statuses["probes/live"] == "passed"
    assert sum(document["summary"].values()) == len(statuses)


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("listeners: [{listen: ':0', transport: tcp}]\nadmin: {listen: '127.0.0.1:0'}\n")
    assert main(["check", "-c", str(path), "--json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert found["errors"] == found["models"] == found["servers"] == []
    assert found["serves"]["admin"] == "127.0.0.1:0"
    assert [each["listen"] for each in found["serves"]["listeners"]] == [":0"]
    (warning,) = found["warnings"]
    assert (warning["file"], warning["line"], warning["key"]) == (str(path), 1, "listeners[0]")
    path.write_text("listeners: []\nadmim: {}\n")
    assert main(["check", "-c", str(path), "--json"]) == 2
    first, second = orjson.loads(capsys.readouterr().out)["errors"]
    assert (first["key"], first["text"]) == ("listeners", "must not be empty")
    assert (second["line"], second["text"][:36]) == (2, "unknown key 'admim'; did you mean 'a")


def test_json_is_an_option_of_every_command_with_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    lack = set()
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        if "--json" not in capsys.readouterr().out:
            lack.add(name)
    # these serve, write a file, or print JSON or a script
    assert lack == {"serve", "init", "schema", "completion"}
