"""What the processes of one server have in common about an upstream: the health of its servers, which of them
have the state of sequences, and the models that clients have unloaded there.

A process that learns of a change notifies the others. Health and the places of sequences are used as they
are known: a notice may arrive after the next request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from interlingua.runtime.upstream.pool.homes import Key
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ModelStatus


class Notice(NamedTuple):
    """``key`` is a url, a sequence of a model, or the name of a model; ``value`` is what is known of it, None
    for nothing out of the ordinary."""

    upstream: str
    kind: Literal["server", "sequence", "model"]
    key: Any
    value: Any


def share(upstream: Upstream, send: Callable[[Notice], None]) -> None:
    """Send a notice of every change here."""
    name = upstream.name

    def server(member: Member) -> None:
        send(Notice(name, "server", member.url, member.health))

    def sequence(key: Key, url: str | None) -> None:
        send(Notice(name, "sequence", key, url))

    def model(remote: str, last: ModelStatus | None) -> None:
        send(Notice(name, "model", remote, last))

    upstream.pool.share(server, sequence)
    upstream.unloaded.notify = model


def take(upstream: Upstream, notice: Notice) -> None:
    """Apply a notice of another process."""
    if notice.kind == "server":
        for member in upstream.pool.members:
            if member.url == notice.key:
                member.adopt(notice.value)
    elif notice.kind == "sequence":
        upstream.pool.homes.place(notice.key, notice.value)
    else:
        upstream.unloaded.take(notice.key, notice.value)
