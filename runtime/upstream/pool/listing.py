"""The servers that a file lists, as the file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from interlingua.runtime.upstream.members_file import ListedMember, MembersFile
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.pool.names import Change, HostName

Make = Callable[[str], HostName | Member]
"""Makes the server at a URL, or the name to follow."""


class Listing:
    """The servers of ``file``, and those behind the host names in it."""

    def __init__(self, file: MembersFile, make: Make) -> None:
        self._file = file
        self._make = make
        self._known: dict[str, HostName | Member] = {}
        self._settle()

    @property
    def fault(self) -> str:
        """Why the file is unreadable now; empty if it is readable."""
        return self._file.fault

    @property
    def why_empty(self) -> str:
        file = self._file
        reason = f"is unreadable: {file.fault}" if file.fault else "lists no server"
        return f"the members file {file.path} {reason}"

    def names(self) -> Iterator[HostName]:
        return (each for each in self._known.values() if isinstance(each, HostName))

    def members(self) -> list[Member]:
        return [member for each in self._known.values() for member in members_at(each)]

    async def poll(self, change: Change) -> None:
        """Report servers that join, leave or have another weight or zone."""
        if await asyncio.to_thread(self._file.poll):
            before = dict.fromkeys(self.members())
            self._settle()
            after = dict.fromkeys(self.members())
            come = [member for member in after if member not in before]
            change(come, [member for member in before if member not in after])

    def _settle(self) -> None:
        known = self._known
        self._known = {
            member.url: known.get(member.url) or self._make(member.url) for member in self._file.members
        }
        for member in self._file.members:
            _weigh(self._known[member.url], member)


def _weigh(server: HostName | Member, listed: ListedMember) -> None:
    server.weight, server.zone = listed.weight, listed.zone
    if isinstance(server, HostName):
        for member in server.known.values():
            member.weight, member.zone = listed.weight, listed.zone


def members_at(server: HostName | Member) -> list[Member]:
    """The server, or those behind a name."""
    return list(server.known.values()) if isinstance(server, HostName) else [server]
