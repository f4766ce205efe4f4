"""The schema of headers: the names that requests to upstreams can have, the files with their values, and the
headers of callers that become parameters."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, field_validator

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.section import Section, Text
from interlingua.protocols.wire import REQUEST_ID
from interlingua.runtime.upstream.forwarding import TRACE
from interlingua.runtime.upstream.header_file import read_value
from interlingua.translator.serving.header_parameters import HeaderParameters

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

_HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
"""Headers of one connection (RFC 9110, section 7.6.1)."""

_OF_THE_TRANSPORT = frozenset(
    (
        *("accept", "accept-encoding", "content-encoding", "content-length", "content-type"),
        *("expect", "host"),
    )
)
"""Headers that transports write; dialects declare theirs in the manifest."""


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{name}' cannot be the name of a header")
    name = name.lower()
    if name in _HOP_BY_HOP:
        raise ValueError(f"'{name}' is of one connection and goes no further (RFC 9110, 7.6.1)")
    written = _OF_THE_TRANSPORT.union(*(dialect.manifest.headers for dialect in DIALECTS.values()))
    if name in written or name.startswith("grpc-"):
        raise ValueError(f"'{name}' is written for each message, as its dialect and transport need it")
    if name.endswith("-bin"):
        raise ValueError(f"'{name}' is binary metadata of gRPC, which is not read")
    return name


def _own_name(name: str) -> str:
    name = _name(name)
    if name in (*TRACE, REQUEST_ID):
        raise ValueError(f"'{name}' is the caller's and always goes on as the caller sent it")
    return name


def _pattern(pattern: str) -> str:
    try:
        HeaderParameters(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return pattern


ForwardedName = Annotated[str, AfterValidator(_name)]
"""A header of callers, in lower case."""
OwnName = Annotated[str, AfterValidator(_own_name)]
"""A header of the configuration's own, in lower case."""
HeaderPattern = Annotated[Text, AfterValidator(_pattern)]


class HeaderOptions(Section):
    """A header to add. Its value never appears in a log, a recording or a page."""

    file: Text
    """The file with the value, one line; surrounding white space is stripped. The file is reloaded when it
    changes, so that tokens can be renewed. A relative path starts at the working directory of the
    process."""

    @field_validator("file")
    @classmethod
    def _readable(cls, path: str) -> str:
        try:
            read_value(path)
        except OSError as error:
            raise ValueError(f"'{path}' cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"'{path}' {error}") from None
        return path
