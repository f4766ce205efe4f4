"""``python -m tests.chaos``: every fault around a real daemon, and clients that leave one just before it stops; exits
with 1 if something happens that must not."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.chaos import departures
from tests.chaos.faults import FAULTS
from tests.chaos.measure import run
from tests.chaos.table import table, write


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", help='parts of names, and "departures"; the default is all')
    parser.add_argument("--secs", type=float, default=6.0, help="the duration of each fault")
    parser.add_argument("--write", action="store_true", help="write the table into docs/testing.md")
    options = parser.parse_args()
    chosen = [
        fault for fault in FAULTS if not options.faults or any(part in fault.name for part in options.faults)
    ]
    violations = []
    with tempfile.TemporaryDirectory() as folder:
        if chosen:
            rows = asyncio.run(run(chosen, Path(folder) / "world", options.secs))
            print(table(rows))
            if options.write:
                write(rows)
            violations += [f"{row.fault.name}: {violation}" for row in rows for violation in row.violations]
        if not options.faults or "departures" in options.faults:
            left = asyncio.run(departures.run(Path(folder) / "departures"))
            print(departures.table(left))
            violations += [f"{row.name}: {violation}" for row in left for violation in row.violations]
    print(*violations, sep="\n", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
