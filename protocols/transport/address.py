"""The addresses in a configuration: of listeners and of upstreams.

Text in, values out; nothing is looked up or opened here, so a file can be checked on another machine.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

_UNIX = "unix:"
_LONGEST_UNIX_PATH = 107
"""The size of ``sun_path`` on Linux without the terminating zero."""

_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[\w.-]*):(?P<port>[0-9]{1,5})", re.ASCII)
_BASE = re.compile(r"(?:/[^/?#\s]+)*", re.ASCII)
_DEFAULT_PORT = {"http": 80, "https": 443}

SCHEMES = {"http": ("http", "https"), "grpc": ("grpc",), "brpc": ("brpc",), "tcp": ("tcp",)}
"""The URL schemes of each transport; an address without a scheme means the first."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, or the ``path`` of a unix socket. To listen, an empty ``host`` is every
    interface and port 0 any free one."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def covers(wide: Address, other: Address) -> bool:
    """Whether to listen at ``wide``, which is every interface, or every one of IPv4 or of IPv6, is to listen
    at ``other`` too. Host names are not looked up."""
    if wide.path or other.path or not wide.port or wide.port != other.port or wide == other:
        return False
    if not wide.host:
        return True
    try:
        place = ipaddress.ip_address(wide.host)
        return place.is_unspecified and ipaddress.ip_address(other.host).version == place.version
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Url:
    """An upstream's address. ``scheme`` may be empty; ``base`` is the prefix of every path, such as
    ``/models``, without a trailing slash."""

    address: Address
    scheme: str = ""
    base: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{self.base}" if self.scheme else f"{self.address}{self.base}"


def parse_address(text: str) -> Address:
    """Read ``host:port``, ``[::1]:port``, ``:port`` or ``unix:path``. Raises ``ValueError``."""
    if text.startswith(_UNIX):
        return Address(path=_unix_path(text))
    matched = _HOST_PORT.fullmatch(text)
    if matched is None:
        raise ValueError(f"'{text}' is not an address: write host:port, [::1]:port, :port or unix:path")
    port = int(matched["port"])
    if port > 65535:
        raise ValueError(f"'{text}' is not an address: ports end at 65535")
    return Address(matched["host"].strip("[]"), port)


def parse_url(text: str, transport: str = "") -> Url:
    """Read ``host:port``, ``http://host[:port][/base]``, ``https://…``, ``grpc://host:port``,
    ``brpc://host:port``, ``tcp://host:port`` or ``unix:path``. Given a transport, the scheme must be one of
    its own. Raises ``ValueError``."""
    if text.startswith(_UNIX):
        return Url(Address(path=_unix_path(text)))
    scheme, separator, rest = text.rpartition("://")
    allowed = SCHEMES[transport] if transport else sum(SCHEMES.values(), ())
    if separator and scheme not in allowed:
        raise ValueError(f"'{text}' has an unknown scheme: one of {', '.join(allowed)} is meant, or none")
    place, _, base = rest.partition("/")
    base = f"/{base}".rstrip("/")
    if base and (scheme or "http") not in SCHEMES["http"]:
        raise ValueError(f"'{text}' has a path, which {scheme} has no place for")
    if not _BASE.fullmatch(base):
        raise ValueError(f"'{text}' may have a plain path after the port, no query and no fragment")
    if ":" not in place.rpartition("]")[2] and scheme in _DEFAULT_PORT:
        place = f"{place}:{_DEFAULT_PORT[scheme]}"
    try:
        address = parse_address(place)
    except ValueError:
        address = Address()
    if not address.host or not address.port:
        raise ValueError(f"'{text}' is not a URL: write host:port, http://host:port/base or unix:path")
    return Url(address, scheme, base)


def _unix_path(text: str) -> str:
    path = text.removeprefix(_UNIX)
    if path.startswith("///"):  # unix:///run/x.sock, as URLs and gRPC targets spell it
        path = path[2:]
    elif path.startswith("//"):
        raise ValueError(f"'{text}' is not an address: write unix:relative/path or unix:/absolute/path")
    if not path or path.endswith("/") or "\0" in path:
        raise ValueError(f"'{text}' names no socket: write unix:path")
    if len(path.encode()) > _LONGEST_UNIX_PATH:
        raise ValueError(
            f"'{text}' is too long: the path of a unix socket ends at {_LONGEST_UNIX_PATH} bytes"
        )
    return str(PurePosixPath(path))
