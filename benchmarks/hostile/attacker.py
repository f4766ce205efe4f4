"""The process of one attack: ``python -m benchmarks.hostile.attacker``.

One JSON object in, the attack's name and its target; one out, the number of lost requests.
"""

from __future__ import annotations

import json
import sys

from benchmarks.hostile.attack import Target
from benchmarks.hostile.table import ATTACKS


def main() -> int:
    """Carry out the order on standard input."""
    order = json.loads(sys.stdin.readline())
    attack = next(each for each in ATTACKS if each.name == order["name"])
    target = Target(order["address"], order["addresses"], order["secs"])
    try:
        lost = attack.run(target)
    except OSError as end:  # the server has closed the connection, as it should
        sys.stderr.write(f"{attack.name}: {end!r}\n")
        lost = 0
    sys.stdout.write(f"{json.dumps({'lost': lost})}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
