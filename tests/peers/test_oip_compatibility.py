"""What docs/dialects/oip-compatibility.md says of every server is so, and little is lost on the way through
the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.oip_checks import Server
from tests.e2e.oip_golden import golden_daemon
from tests.peers.compatibility import COLUMNS, PAGE, read, through, why_not

pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),
]

SAID = read(PAGE.read_text(encoding="utf-8"))
PEERS = ("Triton", "MLServer", "KServe")


@pytest.fixture(scope="session")
def reached(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Server]]:
    """A server by its column, started when it is first asked for."""
    started: dict[str, Server] = {}
    with ExitStack() as running:

        def start(column: str) -> Server:
            if column not in started:
                folder = tmp_path_factory.mktemp("column")
                peer = column.rpartition(" ")[2]
                if peer == "Interlingua":
                    started[column] = running.enter_context(golden_daemon(folder))
                    return started[column]
                started[column] = request.getfixturevalue(peer.lower())
                if column != peer:
                    started[column] = running.enter_context(through(started[column], folder))
            return started[column]

        yield start


@pytest.mark.parametrize(("name", "kind"), SAID)
@pytest.mark.parametrize("column", COLUMNS)
def test_the_page_is_right(reached: Callable[[str], Server], column: str, name: str, kind: str) -> None:
    reason = why_not(name, kind, reached(column))
    assert (not reason) == SAID[name, kind][column], reason or "it works now"
