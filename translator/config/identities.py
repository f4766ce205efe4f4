"""Listeners that permit users, and whether any client can be one."""

from __future__ import annotations

from collections.abc import Iterator

from interlingua.translator.access.grants import USER
from interlingua.translator.config.admin import AdminOptions
from interlingua.translator.config.document import Path
from interlingua.translator.config.options import Config, ListenerOptions


def unknown_users(config: Config) -> Iterator[tuple[Path, str]]:
    """An error for each ``user:NAME`` of an address whose clients cannot authenticate, with its place in
    ``config``."""
    for place, options in _addresses(config):
        if _authenticates(config) or _has_certificates(options):
            continue
        for requested, callers in options.allow.items():
            for number, word in enumerate(callers):
                if word.startswith(USER):
                    text = f"'{word}' needs the option auth, or tls with client: request or require"
                    yield (*place, "allow", requested, number), text


def unused_credentials(config: Config) -> Iterator[tuple[Path, str]]:
    """A warning for credentials that no address requires."""
    if _authenticates(config) and not any(has_users(options) for _, options in _addresses(config)):
        yield ("auth",), "warning: no allow has user:NAME or user:*, so that clients need no credentials"


def has_users(options: ListenerOptions | AdminOptions) -> bool:
    """Whether the address permits anything to users."""
    return any(word.startswith(USER) for callers in options.allow.values() for word in callers)


def has_identities(config: Config) -> bool:
    """Whether any client can have an identity."""
    return _authenticates(config) or any(_has_certificates(options) for _, options in _addresses(config))


def _addresses(config: Config) -> Iterator[tuple[Path, ListenerOptions | AdminOptions]]:
    for number, listener in enumerate(config.listeners):
        yield ("listeners", number), listener
    if config.admin is not None:
        yield ("admin",), config.admin


def _authenticates(config: Config) -> bool:
    return config.auth is not None and (config.auth.tokens is not None or config.auth.jwt is not None)


def _has_certificates(options: ListenerOptions | AdminOptions) -> bool:
    return options.tls is not None and options.tls.client != "none"
