"""The facts that a dialect declares about itself: title, examples, options and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interlingua.protocols.section import Section


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """The facts of a dialect that the configuration, reports and recordings need.

    ``title`` is its name in sentences; empty, it is the dialect's name. ``examples`` are shell commands by
    transport, with ``+unix`` for a unix socket: they need only this program and curl, and have the fields
    ``{python}``, ``{url}``, ``{path}`` (of the socket) and ``{model}``. ``default_flavor`` is the server that
    the bindings follow outside of their ``flavors``. ``header_inputs`` are inputs that hold the HTTP headers
    of a request, as one JSON object: recordings redact them like headers.
    ``headers`` are those that its messages have, in lower case: the configuration cannot set them.
    ``extensions`` are the optional features in server metadata, in the order of the original server.

    ``section`` is the dialect's section of the configuration, under its name. ``listener`` has the keys that
    the dialect adds to every listener. ``Dialect.configure`` applies both. Listeners without ``dialects:``
    speak the dialects with ``by_default``; the others need to be listed.
    """

    title: str = ""
    by_default: bool = False
    examples: Mapping[str, str] = field(default_factory=dict)
    default_flavor: str = ""
    header_inputs: frozenset[str] = frozenset()
    headers: frozenset[str] = frozenset()
    extensions: tuple[str, ...] = ()
    section: type[Section] | None = None
    listener: type[Section] | None = None


def grpc_example(dialect: str, method: str, request: str, response: str, member: str) -> str:
    """A unary call with the message classes of this program; ``member`` of ``request`` names the model."""
    return (
        f'{{python}} -c "import grpc; from interlingua.schemas.{dialect} import MESSAGES as M; '
        f"call = grpc.insecure_channel('{{url}}').unary_unary('/{method}'); "
        f"request = M['{request}']({member}='{{model}}').SerializeToString(); "
        f"print(M['{response}'].FromString(call(request)))\""
    )
