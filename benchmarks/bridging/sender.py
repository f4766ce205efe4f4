"""Clients whose requests differ: a process like ``benchmarks.clients``, with a number of requests as its end.

An order has ``requests``, which the clients send in turn. In each request sent, ``PLACE`` is another number
of as many digits, wherever the request has it: in its headers and in its message. Every answer must contain
what its own request says that it has to, so that the answer to another request does not count.
"""

from __future__ import annotations

import base64
import itertools
import json
import secrets
import selectors
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from benchmarks.bridging.requests import Request
from benchmarks.clients import Client, rounds
from benchmarks.load import connected

PLACE = "c0ffee0123456789"
"""16 digits of hexadecimal, as in an id of W3C Trace Context."""

_FIRST = 16
"""What each client sends before the clock starts: connections learn from their first requests."""


def numbered(request: Request, number: int) -> Request:
    """``request`` with ``number`` in all places. The answer must have it if the message has."""
    digits = f"{number:016x}"
    headers = {name: value.replace(PLACE, digits) for name, value in request.headers.items()}
    place, here = PLACE.encode(), digits.encode()
    return replace(request, headers=headers, body=request.body.replace(place, here))


def packed(request: Request) -> dict[str, Any]:
    """``request`` as an order has it."""
    coded = {name: base64.b64encode(getattr(request, name)).decode() for name in ("body", "echoed")}
    return {"transport": request.transport, "path": request.path, "headers": dict(request.headers), **coded}


def unpacked(order: Mapping[str, Any]) -> Request:
    """The request of ``packed``."""
    return Request(**{**order, **{name: base64.b64decode(order[name]) for name in ("body", "echoed")}})


class Sender:
    """Sends the next request for any client, and checks its answer."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = itertools.cycle(requests)
        # below 2**63, so that no run of them ends
        self._numbers = itertools.count(secrets.randbits(62) + 1)
        self._expected: dict[Client, tuple[bytes, ...]] = {}

    def ask(self, client: Client) -> None:
        """Have ``client`` send a request that no other one was."""
        template, number = next(self._requests), next(self._numbers)
        request = numbered(template, number)
        request.change(client.wire)
        named = PLACE.encode() in template.body
        self._expected[client] = (request.echoed, *((b"%016x" % number,) if named else ()))
        client.ask()

    def check(self, client: Client, answer: bytes) -> None:
        """Raise ``RuntimeError`` for the answer to another request."""
        for part in self._expected[client]:
            # some write JSON over many lines
            if part not in answer and part not in answer.translate(None, b" \n"):
                raise RuntimeError(f"the answer is wrong, it lacks {part!r}: {answer[:300]!r}")


def _answered(
    answers: Iterator[tuple[Client, bytes]], sender: Sender, clients: list[Client], count: int
) -> None:
    """Send ``count`` requests, one at a time by each client, and take their answers."""
    left = count
    for client in clients[:left]:
        sender.ask(client)
    left -= min(left, len(clients))
    waiting = count
    while waiting:
        client, answer = next(answers)
        sender.check(client, answer)
        waiting -= 1
        if left:
            sender.ask(client)
            left -= 1


def drive(order: dict[str, Any], tell: Any, wait: Any) -> dict[str, Any]:
    """Carry out ``order``: ``tell`` that the clients are there, ``wait`` for the start, then the count."""
    requests = [unpacked(each) for each in order["requests"]]
    with ExitStack() as closing:
        selector = closing.enter_context(selectors.DefaultSelector())
        clients = []
        for _ in range(order["clients"]):
            connection: socket.socket = closing.enter_context(connected(order["address"]))
            connection.setblocking(False)
            clients.append(Client(requests[0].wire(), connection, selector))
        sender, answers = Sender(requests), rounds(selector)
        _answered(answers, sender, clients, _FIRST * len(clients))
        tell({"head": "", "body": ""})
        wait()
        _answered(answers, sender, clients, order["count"])
        return {"count": order["count"]}


def _tell(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        _tell(drive(json.loads(line), _tell, sys.stdin.readline))
