"""Requests that come when they come, whatever is under way: an open loop at a given rate, with random gaps.

A process of its own: one JSON object per line in, one per line out. How long an answer took counts from when
its request was sent; from when it was to be sent where every connection was busy.
"""

from __future__ import annotations

import json
import random
import selectors
import sys
import time
from collections import deque
from contextlib import ExitStack
from typing import Any

from benchmarks.clients import connected, rounds


def drive(order: dict[str, Any]) -> dict[str, Any]:
    """Send requests for ``secs``, ``rate`` of them in a second on average, on ``clients`` connections; the
    microseconds that each took. ``seed`` decides about the gaps."""
    chance = random.Random(order["seed"])
    with ExitStack() as closing:
        # the one kind whose waits are not rounded to milliseconds
        selector = closing.enter_context(selectors.SelectSelector())
        idle = deque(connected(order, selector, closing))
        everybody = len(idle)
        for client in idle:
            client.ask()
        warm = rounds(selector)
        length = min(len(next(warm)[1]) for _ in range(everybody))
        late: deque[float] = deque()
        took: list[float] = []
        due = time.monotonic()
        until = due + order["secs"]
        while due < until or len(idle) < everybody:
            now = time.monotonic()
            while due <= now and due < until:
                if idle:
                    idle.popleft().ask()
                else:
                    late.append(due)
                due += chance.expovariate(order["rate"])
            for key, events in selector.select(max(0.0, due - time.monotonic())):
                client = key.data
                answer = client.answer(events)
                if answer is None:
                    continue
                took.append((time.monotonic() - client.began) * 1e6)
                if len(answer) < length:
                    raise RuntimeError(f"an answer has {len(answer)} bytes, the first had {length}")
                if late:
                    client.ask()
                    client.began = late.popleft()
                else:
                    idle.append(client)
        return {"us": took}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(drive(json.loads(line)))}\n")
        sys.stdout.flush()
