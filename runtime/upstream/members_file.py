"""A file that lists the servers of an upstream, in YAML or JSON, such as one that a service registry writes.

Either a list or a mapping with the list under ``members``. Each entry is a URL, or a mapping of ``url`` and
optionally ``weight`` and ``zone``.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from interlingua.protocols.transport.address import parse_url

MAX_BYTES = 1 << 20
"""Some ten thousand servers."""

MAX_WEIGHT = 1_000_000

_TICK_NS = 2_000_000_000
"""The coarsest clock of common file systems: two changes within it may have one time."""

_FILE = "file:"

_KEYS = ("url", "weight", "zone")

_log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


class ListedMember(NamedTuple):
    """One server of the file."""

    url: str
    weight: float = 1.0
    zone: str = ""


def members_path(url: str) -> str | None:
    """The path in ``file:path``; None for the URL of a server."""
    return url.removeprefix(_FILE) if url.startswith(_FILE) and url != _FILE else None


def read_members(path: str | Path, transport: str) -> tuple[ListedMember, ...]:
    """The servers in the file at ``path``. Raises ``OSError``, and ``ValueError`` for an invalid file; its
    message starts with the key in the file, if there is one."""
    return _parsed(_content(Path(path)), transport)


class MembersFile:
    """The servers in the file at ``path``, which changes. ``fault`` says why its last change is unreadable:
    until it is readable the members before it stay, none for a process that has just started."""

    def __init__(self, path: str | Path, transport: str) -> None:
        self._path = Path(path)
        self._transport = transport
        self._stamp: Stamp | None = None
        self._seen: bytes | None = None
        self.members: tuple[ListedMember, ...] = ()
        self.fault = ""
        self.poll()

    @property
    def path(self) -> str:
        return str(self._path)

    def poll(self) -> bool:
        """Whether ``members`` are others than before. A change that cannot be read is logged once."""
        try:
            found = os.stat(self._path)
            # a ConfigMap of Kubernetes changes by its symbolic link: another file, perhaps of the same time
            stamp = found.st_mtime_ns, found.st_ino, found.st_size
            if stamp == self._stamp:
                return False
            data = _content(self._path)
        except OSError as error:
            self._stamp = None
            self._keep(None, error.strerror or str(error))
            return False
        self._stamp = stamp if time.time_ns() - found.st_mtime_ns > _TICK_NS else None
        if data == self._seen:
            return False
        try:
            members = _parsed(data, self._transport)
        except ValueError as error:
            self._keep(data, str(error))
            return False
        self._seen, self.fault = data, ""
        facts = {"file": self.path, "members": len(members)}
        _log.info("members file read", extra={"facts": facts})
        before, self.members = self.members, members
        return members != before

    def _keep(self, data: bytes | None, reason: str) -> None:
        """Log once that the file, as it is now, is unreadable."""
        if data != self._seen or reason != self.fault:
            self._seen, self.fault = data, reason
            facts = {"file": self.path, "reason": reason}
            _log.warning("members file unreadable, last members kept", extra={"facts": facts})


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


@lru_cache(maxsize=8)
def _parsed(data: bytes, transport: str) -> tuple[ListedMember, ...]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES} bytes")
    found = _document(data)
    if found is None:
        # a file that is being written is empty for a moment
        raise ValueError("is empty: write [] for no servers")
    where = ""
    if isinstance(found, Mapping):
        _refuse_others(found, ("members",), "")
        found, where = found.get("members"), "members"
    if not isinstance(found, list):
        raise ValueError("is not a list of servers, nor a mapping with a list under 'members'")
    members = tuple(_member(entry, f"{where}[{place}]", transport) for place, entry in enumerate(found))
    _refuse_repeated(members)
    return members


def _document(data: bytes) -> Any:
    with suppress(orjson.JSONDecodeError):
        # JSON may be indented by tabs, YAML may not
        return orjson.loads(data)
    try:
        # not the loader in C, which ends the process at deep nesting
        return yaml.safe_load(data.decode())
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        # those of Python come from tags that contradict their values
        raise ValueError(_described(error)) from error


def _described(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"is not valid YAML: {error.problem} (line {error.problem_mark.line + 1})"
    return f"is not valid YAML: {' '.join(str(error).split())}"


def _member(entry: Any, where: str, transport: str) -> ListedMember:
    if isinstance(entry, str):
        entry = {"url": entry}
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where}: must be a URL or a mapping of url, weight and zone")
    _refuse_others(entry, _KEYS, f"{where}.")
    url, weight, zone = entry.get("url"), entry.get("weight", 1.0), entry.get("zone", "")
    if not isinstance(url, str):
        raise ValueError(f"{where}.url: must be text")
    try:
        parse_url(url, transport)
    except ValueError as error:
        raise ValueError(f"{where}.url: {error}") from None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= MAX_WEIGHT:
        raise ValueError(f"{where}.weight: must be a number above 0, at most {MAX_WEIGHT}")
    if not isinstance(zone, str):
        raise ValueError(f"{where}.zone: must be text")
    return ListedMember(url, float(weight), zone)


def _refuse_others(found: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for key in found:
        if key not in known:
            raise ValueError(f"{where}{key}: is unknown; the keys are {', '.join(known)}")


def _refuse_repeated(members: tuple[ListedMember, ...]) -> None:
    seen = set()
    for member in members:
        if member.url in seen:
            raise ValueError(f"URL '{member.url}' is repeated")
        seen.add(member.url)
