"""The header of the PROXY protocol, in which a proxy reports the address of its client.

The rules are those of HAProxy's "The PROXY protocol, versions 1 & 2" (proxy-protocol.txt), with its section
numbers. No sockets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
"""The first bytes of version 2 (section 2.2)."""

MAX_LINE_BYTES = 107
"""The longest line of version 1, with its CR LF (section 2.1)."""

MAX_HEADER_BYTES = 16 + 0xFFFF
"""The longest header of version 2, with everything that it may carry (section 2.2)."""

_PREFIX = b"PROXY "
_FIXED = struct.Struct("!12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
"""Version 2 and the command."""

_UNSPECIFIED, _UNIX = 0x00, 0x31
_FAMILIES: dict[int, tuple[type[IPv4Address] | type[IPv6Address], int, int]] = {
    0x11: (IPv4Address, 4, 12),
    0x21: (IPv6Address, 16, 36),
}
"""By family and transport, which is always a stream: the address, its size, and that of all addresses."""

_UNIX_BYTES = 216


class ProxyHeaderError(ValueError):
    """The first bytes of a connection are no header of the PROXY protocol."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A header of ``size`` bytes. The client is at ``host`` and ``port``; it is the proxy itself if ``own``,
    and uses a unix socket of the proxy if ``unix``. It is unknown with none of them."""

    size: int
    host: str = ""
    port: int = 0
    own: bool = False
    unix: bool = False


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header that ``data`` begins with; None if it is not complete. Raises ``ProxyHeaderError``."""
    if data.startswith(SIGNATURE):
        return _read_binary(data)
    if data.startswith(_PREFIX):
        return _read_line(data)
    if SIGNATURE.startswith(data) or _PREFIX.startswith(data):
        return None
    raise ProxyHeaderError("the header of the PROXY protocol is missing")


def _read_line(data: bytes) -> ProxyHeader | None:
    """Version 1 (section 2.1)."""
    end = data.find(b"\r\n", 0, MAX_LINE_BYTES)
    if end < 0:
        if len(data) >= MAX_LINE_BYTES:
            raise ProxyHeaderError(f"the line has more than {MAX_LINE_BYTES} bytes")
        return None
    size = end + 2
    fields = data[:end].decode("latin-1").split(" ")[1:]
    if fields[0] == "UNKNOWN":
        return ProxyHeader(size)
    kind = {"TCP4": IPv4Address, "TCP6": IPv6Address}.get(fields[0])
    if kind is None or len(fields) != 5:
        raise ProxyHeaderError("the line has not the five fields of TCP4 or TCP6")
    try:
        source, _ = (kind(text) for text in fields[1:3])
    except ValueError:
        raise ProxyHeaderError(f"an address is not of {fields[0]}") from None
    port, _ = (_port(text) for text in fields[3:])
    return ProxyHeader(size, str(source), port)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 0xFFFF):
        raise ProxyHeaderError("a port is not a number up to 65535")
    return int(text)


def _read_binary(data: bytes) -> ProxyHeader | None:
    """Version 2 (section 2.2). The fields after the addresses are skipped."""
    if len(data) < _FIXED.size:
        return None
    _, command, family, length = _FIXED.unpack_from(data)
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"version and command {command:#04x} are unknown")
    size = _FIXED.size + length
    if len(data) < size:
        return None
    if command == _LOCAL:
        return ProxyHeader(size, own=True)
    if family == _UNSPECIFIED:
        return ProxyHeader(size)
    needed = _UNIX_BYTES if family == _UNIX else _FAMILIES[family][2] if family in _FAMILIES else 0
    if not needed:
        raise ProxyHeaderError(f"family and transport {family:#04x} are not of a stream")
    if length < needed:
        raise ProxyHeaderError("the header ends within the addresses")
    if family == _UNIX:
        return ProxyHeader(size, unix=True)
    kind, width, _ = _FAMILIES[family]
    at = _FIXED.size
    (port,) = struct.unpack_from("!H", data, at + 2 * width)
    return ProxyHeader(size, str(kind(data[at : at + width])), port)
