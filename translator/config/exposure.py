"""Addresses at which a proxy would make its clients look local."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from interlingua.protocols.transport.address import parse_address
from interlingua.translator.access.addresses import is_local, read_address
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.access.grants import DEFAULTS, LOCAL
from interlingua.translator.config.admin import AdminOptions
from interlingua.translator.config.document import Path
from interlingua.translator.config.options import Config, ListenerOptions


def exposed(config: Config) -> Iterator[tuple[Path, str]]:
    """A warning for each address beyond loopback that permits anything to local callers and trusts no proxy,
    with its place in ``config``."""
    for number, listener in enumerate(config.listeners):
        yield from _exposed(("listeners", number), listener, {**DEFAULTS, **listener.allow})
    if config.admin is not None:
        yield from _exposed(("admin",), config.admin, config.admin.allow)


def _exposed(
    place: Path, options: ListenerOptions | AdminOptions, allow: Mapping[OperationClass, Sequence[str]]
) -> Iterator[tuple[Path, str]]:
    address = parse_address(options.listen)
    permitted = [name for name, callers in allow.items() if LOCAL in callers]
    loopback = address.path or address.host == "localhost" or is_local(read_address(address.host))
    if permitted and not loopback and not options.trusted_proxies:
        text = (
            f"warning: permits {', '.join(permitted)} to local callers; a proxy on this machine makes all "
            "its clients local, unless trusted_proxies names it"
        )
        yield place, text
