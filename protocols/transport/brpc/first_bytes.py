"""The protocol of a connection to a bRPC port, by its first bytes: baidu_std, HTTP/1.1 or gRPC."""

from __future__ import annotations

from typing import Literal

from interlingua.protocols.transport.brpc.frame import MAGIC
from interlingua.protocols.transport.h2.frames import PREFACE

_STARTS: dict[bytes, Literal["baidu_std", "http", "grpc"]] = {
    MAGIC: "baidu_std",
    PREFACE[: len(MAGIC)]: "grpc",
    **dict.fromkeys((b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC"), "http"),
}
"""How a connection begins."""


def protocol_of(data: bytes) -> Literal["baidu_std", "http", "grpc", "unknown"] | None:
    """The protocol of a connection that begins with ``data``; None if more bytes are needed."""
    found = _STARTS.get(data[: len(MAGIC)])
    if found is not None:
        return found
    return None if any(start.startswith(data) for start in _STARTS) else "unknown"
