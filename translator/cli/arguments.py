"""Arguments that several commands share, and the error of a command with wrong ones."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The name of a header: a token (RFC 9110, section 5.6.2)."""


class RefusedError(Exception):
    """An argument, or a value, is invalid; the message says why. The exit code is 2."""


class NoAnswerError(Exception):
    """A daemon does not answer at its admin address; the message says why. The exit code is 1."""


class Pixels(NamedTuple):
    """The values of black and of white in a tensor of floats; tensors of integers have 0 to 255."""

    black: float = 0.0
    white: float = 255.0


def add_server(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dialect", required=True, metavar="D", help="the server's dialect, such as oip or graphpipe")
    add("--transport", required=True, metavar="T", help="its transport: http, grpc, brpc or tcp")
    add("--url", required=True, metavar="U", help="host:port, http://host:port/prefix or unix:path")


def add_admin(parser: argparse.ArgumentParser, default: str = "") -> None:
    """The options of the admin address; ``default`` is that without any, which is an error if empty."""
    where = parser.add_mutually_exclusive_group(required=not default)
    where.add_argument(
        "-c", "--config", metavar="FILE", help="the file of the daemon, with its admin address"
    )
    shown = f" (default: {default})" if default else ", such as http://127.0.0.1:8002"
    where.add_argument("--admin", metavar="URL", default=default, help=f"the admin address{shown}")
    parser.add_argument(
        "--ca", metavar="FILE", help="with an https URL: the authorities (default: the system's)"
    )


def read_headers(stated: Sequence[str]) -> dict[str, str]:
    """The headers of ``--header``, names in lower case. Raises ``RefusedError``."""
    found = {}
    for text in stated:
        name, separator, value = text.partition(":")
        if not separator or not _HEADER.fullmatch(name.strip()) or not value.isprintable():
            raise RefusedError(f"--header {text!r}: write 'name: value'")
        found[name.strip().lower()] = value.strip()
    return found


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65_533:
        raise ValueError
    return value


def pixels(text: str) -> Pixels:
    """A range on the command line, such as `0:1`. Raises ``ValueError``."""
    black, _, white = text.partition(":")
    found = Pixels(float(black), float(white))
    if not (isfinite(found.black) and isfinite(found.white)) or found.black == found.white:
        raise ValueError
    return found


# argparse shows the names of types in its errors
positive.__name__, not_negative.__name__ = "number above 0", "number of at least 0"
count.__name__, port.__name__ = "integer of at least 1", "port from 0 to 65533"
pixels.__name__ = "range such as 0:1"
