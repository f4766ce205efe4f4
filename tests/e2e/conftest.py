"""The front ends of the daemons of this folder's tests, and daemons for all tests that only ask them things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.daemon import ROOT, Daemon
from tests.e2e.one_process import reason
from tests.e2e.trtis_models import LOADED, write_repository


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test with each number of front ends, if there are several."""
    numbers = metafunc.config.getoption("daemon_workers")
    if len(numbers) > 1:
        metafunc.parametrize(
            "daemon_workers", numbers, indirect=True, scope="session", ids="workers-{}".format
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what holds for one process alone, before any fixture starts a daemon."""
    (first, *_) = item.config.getoption("daemon_workers")
    callspec = getattr(item, "callspec", None)
    if callspec is None or "daemon_workers" not in callspec.params:
        workers = first
    else:
        workers = callspec.params["daemon_workers"]
    why = reason(item) if workers else None
    if why is not None:
        pytest.skip(why)


@pytest.fixture(scope="session", autouse=True)
def daemon_workers(request: pytest.FixtureRequest) -> int:
    """The number of front ends of every daemon that a test starts."""
    Daemon.workers = getattr(request, "param", request.config.getoption("daemon_workers")[0])
    return Daemon.workers


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory, daemon_workers: int) -> pytest.TempPathFactory:
    """That of pytest. A daemon for several tests has a folder: with this fixture, it ends before the number changes."""
    return tmp_path_factory


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Listeners, in order: HTTP with every dialect, gRPC, GraphPipe alone on a unix socket, and GraphPipe
    alone over TCP with a small request limit."""
    folder = tmp_path_factory.mktemp("examples")
    graphpipe = {"transport": "http", "dialects": ["graphpipe"], "default_model": "digits"}
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "http"},
                {"listen": "127.0.0.1:0", "transport": "grpc"},
                {"listen": f"unix:{folder}/graphpipe.sock", **graphpipe},
                {"listen": "127.0.0.1:0", **graphpipe, "max_request_bytes": 100_000},
            ],
            "model_repository": [{"path": str(ROOT / "examples" / "models")}],
            "default_model": "identity_fp32",
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
    finally:
        daemon.kill()


@pytest.fixture(scope="session")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The version 1 models behind an HTTP and a gRPC listener with every dialect, and an HTTP listener with
    version 1 alone; clients may load and unload them."""
    folder = tmp_path_factory.mktemp("v1")
    daemon = Daemon.start(
        folder,
        {
            "server": {"id": "replica:7"},
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "http"},
                {"listen": "127.0.0.1:0", "transport": "grpc"},
                {"listen": "127.0.0.1:0", "transport": "http", "dialects": ["trtis"]},
            ],
            "model_repository": [
                {
                    "path": str(write_repository(folder / "models")),
                    "control": "explicit",
                    "load": list(LOADED),
                }
            ],
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()
