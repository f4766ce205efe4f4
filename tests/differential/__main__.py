"""``python -m tests.differential --record``: record again what every case shows without plans. Then look at the
differences from before: what changes, callers or upstreams see."""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

from tests.differential.recorded import record
from tests.differential.running import running
from tests.differential.table import CASES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--record", action="store_true", required=True, help="replace the recorded outcomes")
    parser.add_argument("callers", nargs="*", help="those of these callers only, such as oip/http")
    callers = parser.parse_args().callers
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    with running() as world:
        for case in [each for each in CASES if not callers or each.caller in callers]:
            found[case.caller][str(case)] = world.outcome(case, False)
    for caller, outcomes in found.items():
        record(caller, outcomes)
    requests = sum(len(each["answers"]) for outcomes in found.values() for each in outcomes.values())
    print(f"{sum(map(len, found.values()))} cases, {requests} requests")


if __name__ == "__main__":
    main()
