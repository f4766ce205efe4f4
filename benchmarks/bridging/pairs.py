"""Callers and upstreams of the rows of traffic, and the daemons between them.

One daemon has the models of all pairs, so that a variant needs one daemon for all of them. The upstream has a
built-in identity for each of its dialects and transports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bridging.servers import TINY, write_tiny
from benchmarks.bridging.table import TITLES, WIRES
from benchmarks.bridging.variants import ACCESS, ROUTE, TOKEN, TRACE
from benchmarks.cases import CONFIG, MODEL, over
from interlingua.protocols.registry import DIALECTS


@dataclass(frozen=True)
class Pair:
    """A caller and its upstream, whose model has another name if it is ``renamed``. Without an upstream the
    daemon runs the identity as an ONNX file."""

    kind: str
    caller: str
    over: str
    upstream: tuple[str, str] | None
    renamed: bool = False

    @property
    def name(self) -> str:
        """As in the titles of rows."""
        caller = f"{TITLES[self.caller]} {WIRES[self.over]}"
        if self.upstream is None:
            return f"ONNX identity over {caller}"
        dialect, transport = self.upstream
        renamed = " renamed" if self.renamed else ""
        return f"{caller} -> {TITLES[dialect]} {WIRES[transport]}{renamed}"

    @property
    def remote(self) -> str:
        """The model of the upstream."""
        return MODEL if self.upstream is None else "_".join(self.upstream)

    @property
    def model(self) -> str:
        """The model that callers name."""
        if self.upstream is None:
            return TINY
        return f"renamed_{self.remote}" if self.renamed else self.remote

    @property
    def parts(self) -> frozenset[str]:
        """The parts of variants that it can have. Callers of OIP alone have an id of text; over tcp a message
        has neither headers nor a token."""
        found = {*CONFIGS, TRACE, "shapes", "answers"}
        if self.caller == "oip":
            found |= {"id"} | ({"JSON"} if self.over == "http" else set())
        if self.over == "tcp":
            found -= {TRACE, "token"}
        return frozenset(found)


def _pairs() -> Iterator[Pair]:
    yield Pair("varied", "oip", "http", ("oip", "grpc"))
    yield Pair("varied", "oip", "grpc", ("oip", "grpc"), renamed=True)
    yield Pair("varied", "trtis", "http", ("oip", "grpc"))
    yield Pair("varied", "graphpipe", "http", ("oip", "http"))
    for dialect in DIALECTS:
        for transport in DIALECTS[dialect].bindings:
            yield Pair("equal", dialect, transport, (dialect, transport))
    yield Pair("equal", "oip", "http", ("oip", "http"), renamed=True)
    yield Pair("local", "oip", "http", None)
    yield Pair("local", "oip", "grpc", None)


PAIRS = tuple(_pairs())
_TRANSPORTS = ("http", "grpc", "brpc", "tcp")


def _listeners(default_model: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"listen": "127.0.0.1:0", "transport": transport, "dialects": over(transport)}
        for transport in _TRANSPORTS
    ]
    found[-1]["default_model"] = default_model
    return found


def identities() -> dict[str, Any]:
    """The upstream."""
    models = dict.fromkeys((MODEL, *(pair.remote for pair in PAIRS)), CONFIG["models"][MODEL])
    return {"server": CONFIG["server"], "listeners": _listeners(MODEL), "models": models}


def between(folder: Path, addresses: Mapping[str, str]) -> dict[str, Any]:
    """A daemon without a variant, in front of the upstream with those ``addresses``."""
    write_tiny(folder / "models", "onnxruntime")
    models: dict[str, Any] = {}
    upstreams: dict[str, Any] = {}
    for pair in PAIRS:
        if pair.upstream is not None:
            dialect, transport = pair.upstream
            # a server over tcp has one model without a name
            remote = "" if transport == "tcp" else pair.remote
            models[pair.model] = {"upstream": pair.remote, "remote_model": remote}
            urls = [addresses[transport]]
            upstreams[pair.remote] = {"dialect": dialect, "transport": transport, "urls": urls}
    return {
        "server": CONFIG["server"],
        "listeners": _listeners("graphpipe_tcp"),
        "model_repository": [{"path": str(folder / "models")}],
        "models": models,
        "upstreams": upstreams,
    }


def _access(config: dict[str, Any], folder: Path, collector: str) -> None:
    config["server"] = {**config["server"], "access_log": "all", "log_format": "json"}


def _token(config: dict[str, Any], folder: Path, collector: str) -> None:
    tokens = folder / "tokens.txt"
    tokens.write_text(f"caller: sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    config["auth"] = {"tokens": str(tokens)}
    for listener in config["listeners"]:
        if listener["transport"] != "tcp":
            listener["allow"] = {"inference": ["user:*"]}


def _tracing(config: dict[str, Any], folder: Path, collector: str) -> None:
    config["tracing"] = {"otlp": collector, "sample": 0.01}


def _route(config: dict[str, Any], folder: Path, collector: str) -> None:
    config["routes"] = [{"match": {"model": "unrelated"}, "to": TINY}]


def _split(config: dict[str, Any], folder: Path, collector: str) -> None:
    config["routes"] = []
    for name in dict.fromkeys(pair.model for pair in PAIRS if pair.kind == "varied"):
        config["models"][f"second_{name}"] = config["models"][name]
        split = [{"to": name, "weight": 90}, {"to": f"second_{name}", "weight": 10}]
        config["routes"].append({"match": {"model": name}, "split": split})


CONFIGS: Mapping[str, Callable[[dict[str, Any], Path, str], None]] = {
    ACCESS: _access,
    "token": _token,
    "tracing": _tracing,
    ROUTE: _route,
    "split": _split,
}
"""What parts of variants change in the configuration of a daemon, with its folder and the URL of a
collector."""
