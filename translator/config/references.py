"""Validators of options that refer to something else: a dialect, a model, an address, a folder.

Each validates one value against the :class:`ValidationContext` and raises ``ValueError``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from interlingua.protocols.transport.address import covers, parse_address, parse_url
from interlingua.runtime.upstream.members_file import members_path, read_members
from interlingua.schemas import Datatype
from interlingua.schemas.datatypes import DATATYPES
from interlingua.translator.config import wording
from interlingua.translator.config.context import ValidationContext, model_names


def context_of(info: ValidationInfo) -> ValidationContext:
    if not isinstance(info.context, ValidationContext):
        raise TypeError("options are validated by translator.config.load or parse")
    return info.context


def require(kind: str, word: str, choices: Iterable[str]) -> str:
    """``word``, which must be one of ``choices``. Raises ``ValueError`` naming the nearest."""
    names = list(choices)
    if word not in names:
        raise ValueError(wording.unknown(kind, word, names))
    return word


def _address(value: str, info: ValidationInfo) -> str:
    mine = parse_address(value)
    others = 0
    for text in context_of(info).addresses:
        try:
            other = parse_address(text)
        except ValueError:  # reported at its own line
            continue
        others += other == mine
        if covers(other, mine):
            raise ValueError(f"{value} is taken by the listener at {text}, which binds every interface")
    if others > 1 and (mine.path or mine.port):
        raise ValueError(f"{others} listeners cannot share the address {value}")
    return value


def _unix_path(value: str) -> str:
    return parse_address(f"unix:{value}").path


def _url(value: str, info: ValidationInfo) -> str:
    return _server_url(value, info.data.get("transport", ""))


def _server_url(value: str, transport: str) -> str:
    path = members_path(value)
    if path is None:
        parse_url(value, transport)
        return value
    try:
        read_members(path, transport)
    except OSError as error:
        raise ValueError(f"'{path}' cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"'{path}' {error}") from None
    return value


def _known(kind: str, names: Callable[[ValidationContext], Iterable[str] | None]) -> AfterValidator:
    def check(value: str, info: ValidationInfo) -> str:
        choices = names(context_of(info))
        return value if choices is None else require(kind, value, choices)

    return AfterValidator(check)


def _existing(value: str) -> str:
    if not Path(value).exists():
        raise ValueError(f"'{value}' does not exist (relative paths start at {Path.cwd()})")
    return value


def _folder(value: str) -> str:
    try:
        model_names(_existing(value))
    except OSError as error:
        raise ValueError(f"'{value}' is no folder that can be read: {error.strerror}") from error
    return value


def _datatype(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {wording.shown(value)}")
    return DATATYPES[require("datatype", value, DATATYPES)]


ListenAddress = Annotated[str, AfterValidator(_address)]
"""An address to bind that nothing else in the file binds."""
KnownModel = Annotated[str, _known("model", lambda context: context.models)]
KnownUpstream = Annotated[str, _known("upstream", lambda context: context.upstreams)]
KnownListener = Annotated[str, _known("listener", lambda context: context.listeners)]
KnownDialect = Annotated[str, _known("dialect", lambda context: context.installation.serves)]
KnownBackend = Annotated[str, _known("backend", lambda context: context.installation.backends)]
UnixPath = Annotated[str, AfterValidator(_unix_path)]
UpstreamUrl = Annotated[str, AfterValidator(_url)]
"""The URL of a server, in a form of the entry's transport, or a file of servers."""
PeerUrl = Annotated[str, AfterValidator(lambda value: _server_url(value, "grpc"))]
"""The same, over grpc."""
ExistingPath = Annotated[str, AfterValidator(_existing)]
Folder = Annotated[str, AfterValidator(_folder)]
KnownDatatype = Annotated[Datatype, BeforeValidator(_datatype)]
