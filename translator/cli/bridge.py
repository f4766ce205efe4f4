"""The commented configuration that ``interlingua init`` writes: a bridge from clients to one server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from interlingua.protocols.dialect import Binding
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.translator.cli.yaml_text import as_key, as_value
from interlingua.translator.config.bindings import binding_named, binding_of
from interlingua.translator.config.wording import unknown

PORTS = {"http": 8000, "grpc": 8001, "brpc": 8010, "tcp": 8011}
"""The ports of config.example.yaml; those of Triton, where it has one."""

OWN_PORTS = {"tfserving": {"http": 8501, "grpc": 8500}}
"""Those of a listener of one dialect, whose clients expect others: `tensorflow_model_server --help`."""

ADMIN_PORT = 8002


@dataclass(frozen=True, slots=True)
class Bridge:
    """``clients`` are the bindings that clients use, ``server`` is that of the servers at ``urls``.
    ``models`` are the names there by those that clients use."""

    clients: tuple[Binding, ...]
    server: Binding
    urls: tuple[str, ...]
    models: dict[str, str]

    def text(self) -> str:
        """The configuration, commented."""
        return "\n".join(
            (*self._heading(), "", *self._listeners(), "", *self._upstream(), "", *self._models(), "")
        )

    def _heading(self) -> Iterator[str]:
        dialects = dict.fromkeys(_title(each) for each in self.clients)
        yield f"# Clients of {' and '.join(dialects)} reach a server of {_title(self.server)}."
        yield "# `interlingua check -c FILE --probe` compares this file with the server,"
        yield "# `interlingua serve -c FILE` starts the daemon. docs/configuration.md has every option,"
        yield "# docs/migration.md the steps from one server to another."

    def _listeners(self) -> Iterator[str]:
        yield '# what clients connect to; 127.0.0.1 is this machine alone, ":8000" every interface'
        yield "listeners:"
        for transport in dict.fromkeys(each.transport for each in self.clients):
            spoken = [each for each in self.clients if each.transport == transport]
            speaks = ", ".join(each.dialect for each in spoken)
            ports = OWN_PORTS.get(speaks, PORTS)
            place = as_value(f"127.0.0.1:{ports[transport]}")
            nameless = not all(each.capability.model_name for each in spoken)
            default = f", default_model: {as_value(next(iter(self.models)))}" if nameless else ""
            yield f"  - {{listen: {place}, transport: {transport}, dialects: [{speaks}]{default}}}"
        yield ""
        yield "# health, metrics for Prometheus, a dashboard"
        yield f'admin: {{listen: "127.0.0.1:{ADMIN_PORT}"}}'

    def _upstream(self) -> Iterator[str]:
        yield "upstreams:"
        yield "  server:"
        yield f"    dialect: {self.server.dialect}"
        yield f"    transport: {self.server.transport}"
        yield "    # several are interchangeable: each request goes to the least loaded one"
        yield f"    urls: [{', '.join(map(as_value, self.urls))}]"
        yield "    #request_timeout_secs: 60.0"
        yield "    #tls: {}"

    def _models(self) -> Iterator[str]:
        yield "# by the name that clients use"
        yield "models:"
        for name, remote in self.models.items():
            yield f"  {as_key(name)}:"
            yield "    upstream: server"
            if not remote:
                yield "    # the server's only model, which has no name"
            yield f"    remote_model: {as_value(remote)}"
            yield "    # tensors with other names there"
            yield "    #inputs: {NAME: NAME_THERE}"
            yield "    #outputs: {NAME: NAME_THERE}"
            if not self.server.capability.signatures:
                yield f"    # {_title(self.server)} does not describe tensors; some clients need it"
                yield "    #signature:"
                yield "    #  inputs: [{name: NAME, datatype: FP32, shape: [-1, 16]}]"
                yield "    #  outputs: [{name: NAME, datatype: FP32, shape: [-1, 16]}]"


def clients_of(texts: Sequence[str]) -> tuple[Binding, ...]:
    """The bindings of ``texts``, such as `trtis` (over each of its transports) or `trtis/http`, separated by
    commas. Raises ``ValueError``."""
    found: dict[str, Binding] = {}
    for text in (part.strip() for each in texts for part in each.split(",")):
        if "/" in text:
            bindings = [binding_named(text)]
        elif text in DIALECTS:
            bindings = list(DIALECTS[text].bindings.values())
        else:
            raise ValueError(unknown("dialect", text, DIALECTS))
        found |= {binding.name: binding for binding in bindings if binding.endpoints}
    return tuple(found.values())


def server_of(text: str) -> Binding:
    """The binding of a server, such as `oip/grpc`. Raises ``ValueError``."""
    dialect, _, transport = text.strip().partition("/")
    if not transport and dialect in DIALECTS:
        raise ValueError(f"write the transport, too: {' or '.join(_named(dialect))}")
    return binding_of(dialect, transport)


def urls_of(texts: Sequence[str], server: Binding) -> tuple[str, ...]:
    """The addresses in ``texts``, separated by commas. Raises ``ValueError``."""
    urls = tuple(part.strip() for each in texts for part in each.split(","))
    for url in urls:
        parse_url(url, server.transport)
    return urls


def models_of(texts: Sequence[str], server: Binding) -> dict[str, str]:
    """The names there by those of clients, from `NAME` or `NAME=NAME_THERE`, separated by commas. A server
    whose models have no names has one, called "". Raises ``ValueError``."""
    models = {}
    for text in (part.strip() for each in texts for part in each.split(",")):
        name, separator, remote = text.partition("=")
        if not name:
            raise ValueError("a model needs a name for clients")
        if remote and not server.capability.many_models:
            raise ValueError(f"a server of {server.name} has one model, without a name: write {name} alone")
        models[name] = remote if separator or not server.capability.model_name else name
    return models


def server_names() -> list[str]:
    """Every dialect over each of its transports, as :func:`server_of` takes them."""
    return [name for dialect in DIALECTS for name in _named(dialect)]


def _named(dialect: str) -> list[str]:
    return [each.name for each in DIALECTS[dialect].bindings.values() if each.calls]


def _title(binding: Binding) -> str:
    return DIALECTS[binding.dialect].manifest.title or binding.dialect
