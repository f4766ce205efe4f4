"""Settings that clients look up and change while the server runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from interlingua.schemas import ErrorCode, InferenceError, LogSettings, TraceSettings
from interlingua.translator.logs import setup as logs
from interlingua.translator.serving.settings import LogBook
from interlingua.translator.tracing.settings import TraceBook

TRACES = {
    "trace_level": ("OFF",),
    "trace_rate": ("1000",),
    "trace_count": ("-1",),
    "log_frequency": ("0",),
    "trace_file": ("",),
    "trace_mode": ("triton",),
}
LOG = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


def test_trace_settings_of_a_model_stand_over_those_of_the_server() -> None:
    book = TraceBook()
    assert book.settings() == book.settings("m") == TRACES
    book.change("", {"trace_rate": ("5",), "trace_level": ("TIMESTAMPS", "TENSORS")})
    book.change("m", {"trace_rate": ("7",)})
    assert book.settings("m") == {
        **TRACES,
        "trace_level": ("TIMESTAMPS", "TENSORS"),
        "trace_rate": ("7",),
    }
    assert book.settings("other") == book.settings()
    book.change("m", {"trace_rate": ()})
    assert book.settings("m")["trace_rate"] == ("5",)
    book.change("", {"trace_rate": (), "trace_level": ()})
    assert book.settings("m") == TRACES


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trace_level": ("LOUD",)}, "'trace_level' must be 'OFF' or .*, got 'LOUD'"),
        ({"trace_level": ("OFF", "TENSORS")}, "Expect only one trace level 'OFF' is specified"),
        ({"trace_rate": ("x",)}, "'trace_rate' must be an integer from 0"),
        ({"trace_rate": ("-1",)}, "'trace_rate' must be an integer from 0"),
        ({"trace_rate": ("1", "2")}, "'trace_rate' must have one value, got 2"),
        ({"trace_count": ("-2",)}, "'trace_count' must be an integer from -1"),
        ({"log_frequency": ("4294967296",)}, "'log_frequency' must be an integer from 0 to 4294967295"),
    ],
)
def test_trace_settings_that_make_no_sense(changes: TraceSettings, said: str) -> None:
    book = TraceBook()
    with pytest.raises(InferenceError, match=said) as caught:
        book.change("", {"trace_count": ("3",), **changes})
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert book.settings() == TRACES


@pytest.mark.parametrize("values", [("f",), ()])
def test_the_file_of_traces_is_not_for_clients(values: tuple[str, ...]) -> None:
    with pytest.raises(InferenceError, match="trace file location can not be updated") as caught:
        TraceBook().change("", {"trace_file": values})
    assert caught.value.code is ErrorCode.UNSUPPORTED


def test_unknown_names_pass() -> None:
    traces, log = TraceBook(), LogBook()
    traces.change("", {"what": ("1",), "trace_mode": ("opentelemetry",)})
    log.change({"what": True})
    assert (traces.settings(), log.settings()) == (TRACES, LOG)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"log_info": 1}, "'log_info' must be a boolean"),
        ({"log_verbose_level": True}, "'log_verbose_level' must be an unsigned integer"),
        ({"log_verbose_level": -1}, "'log_verbose_level' must be an unsigned 32-bit integer, got -1"),
        ({"log_verbose_level": 2**32}, "'log_verbose_level' must be an unsigned 32-bit integer"),
        ({"log_format": 1}, "'log_format' must be a string"),
        ({"log_format": "xml"}, "'log_format' must be 'default' or 'ISO8601', got 'xml'"),
    ],
)
def test_log_settings_that_make_no_sense(changes: LogSettings, said: str) -> None:
    book = LogBook(apply=lambda settings: pytest.fail("nothing has changed"))
    with pytest.raises(InferenceError, match=said) as caught:
        book.change({"log_error": False, **changes})
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert book.settings() == LOG


def test_the_file_of_the_log_is_not_for_clients() -> None:
    with pytest.raises(InferenceError, match="log file location can not be updated") as caught:
        LogBook().change({"log_file": "x"})
    assert caught.value.code is ErrorCode.UNSUPPORTED


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a line of each kind becomes."""
    log = logging.getLogger("some")
    log.debug("debug")
    log.info("info")
    log.warning("warning")
    log.error("error")
    log.critical("critical")
    return [line.split(" ")[1] for line in capsys.readouterr().err.splitlines()]


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warning", "error", "critical"]),
        ("info", ["info", "warning", "error", "critical"]),
        ("warning", ["warning", "error", "critical"]),
        ("error", ["error", "critical"]),
    ],
)
def test_the_log_follows(level: str, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(level, "text")
    assert written(capsys) == shown
    book = LogBook(logs.settings(level), logs.apply)
    # to say again what holds changes nothing
    book.change({"log_format": "default"})
    assert written(capsys) == shown
    book.change({"log_warning": False, "log_info": True, "log_verbose_level": 1})
    assert written(capsys) == ["debug", "info", "error", "critical"]
    book.change({"log_error": False, "log_verbose_level": 0})
    assert written(capsys) == ["info"]


@pytest.mark.usefixtures("restored")
def test_the_format_of_times(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("info", "text")
    book = LogBook(logs.settings("info"), logs.apply)
    book.change({"log_format": "ISO8601"})
    logging.getLogger("some").info("said")
    assert capsys.readouterr().err[10] == "T"
    book.change({"log_format": "default"})
    logging.getLogger("some").info("said")
    assert capsys.readouterr().err[8] == " "


@pytest.mark.usefixtures("restored")
def test_json_lines_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("info", "json")
    LogBook(apply=logs.apply).change({"log_format": "ISO8601", "log_info": False})
    logging.getLogger("some").info("said")
    logging.getLogger("some").warning("warned")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "warned"
