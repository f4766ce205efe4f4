"""The authorization of an address, the authenticator and the limits of clients, from their options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from interlingua.protocols.watched_files import WatchedFiles
from interlingua.translator.access.authentication import Authenticator
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.access.clients import ClientLimits
from interlingua.translator.access.grants import ANYONE, read_grants
from interlingua.translator.access.proxies import read_proxies
from interlingua.translator.access.tokens import read_tokens
from interlingua.translator.access.web_tokens import WebTokens
from interlingua.translator.config.auth import AuthOptions
from interlingua.translator.config.options import Config, ListenerOptions


class AccessOptions(Protocol):
    """The options of a listener, or of the admin address."""

    @property
    def listen(self) -> str: ...

    @property
    def allow(self) -> Mapping[OperationClass, Sequence[str]]: ...

    @property
    def trusted_proxies(self) -> Sequence[str]: ...


def authorization(
    options: AccessOptions,
    authenticator: Authenticator | None = None,
    defaults: Mapping[OperationClass, Sequence[str]] | None = None,
    origins: Iterable[str] = (),
) -> Authorization:
    """The authorization of the address, as in :class:`Authorization`; ``defaults`` are the callers of classes
    that it does not state. Raises ``ValueError`` for an unreadable key."""
    grants = read_grants({**(defaults or {}), **options.allow})
    proxies = read_proxies(options.trusted_proxies)
    return Authorization(options.listen, grants, proxies, frozenset(origins), authenticator)


def authorization_of(
    config: Config, listener: ListenerOptions, authenticator: Authenticator | None
) -> Authorization:
    """The authorization of a listener. Raises as :func:`authorization`."""
    for_all = config.server.shared_memory.allow == "all"
    defaults: Mapping[OperationClass, Sequence[str]] = {"shared_memory": (ANYONE,)} if for_all else {}
    origins = () if listener.cors is None else listener.cors.allow_origins
    return authorization(listener, authenticator, defaults, origins)


def authenticator_of(options: AuthOptions | None) -> Authenticator | None:
    """The authenticator of one thread; None if requests have no credentials. Raises ``OSError`` and
    ``ValueError`` for unusable files."""
    if options is None or (options.tokens is None and options.jwt is None):
        return None
    path, jwt = options.tokens, options.jwt
    return Authenticator(
        None if path is None else WatchedFiles([path], partial(read_tokens, path), "tokens"),
        None if jwt is None else WebTokens(jwt.issuer, jwt.audience, jwt.jwks),
        options.api_key_header,
    )


def client_limits(options: AuthOptions | None) -> Mapping[str, ClientLimits]:
    """The limits of clients by name."""
    limits = {} if options is None else options.limits
    return {name: ClientLimits(each.max_requests, each.requests_per_sec) for name, each in limits.items()}
