"""The servers of an upstream as the configuration lists them: in the file itself, or in a members file."""

from __future__ import annotations

from interlingua.runtime.upstream.members_file import ListedMember, members_path, read_members
from interlingua.translator.config.upstreams import UpstreamOptions


def members_file(options: UpstreamOptions) -> str | None:
    """The path of the members file, if there is one."""
    return members_path(options.urls[0])


def members_of(options: UpstreamOptions) -> tuple[ListedMember, ...]:
    """The servers now. A members file that has become unreadable lists none: validation reports it."""
    path = members_file(options)
    if path is None:
        return tuple(map(ListedMember, options.urls))
    try:
        return read_members(path, options.transport)
    except (OSError, ValueError):
        return ()
