"""The memory that failed requests leave: ``python -m benchmarks.failing [--requests 200] [--mib 20]``.

A row for each kind of failure over each binding: the resident memory of the daemon before its requests, the
most while they run, and after them. A client sends one request after another and reads each error.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks import processes, progress
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.schemas import (
    Context,
    Datatype,
    InferenceError,
    InferRequest,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)

ENGINES: Mapping[str, Sequence[str]] = {
    "http": ("native", "library"),
    "grpc": ("native", "library"),
    "brpc": ("native",),
    "tcp": ("native",),
}

_FLAT, _WIDE = (
    {side: [{"name": "X", "datatype": "FP32", "shape": shape}] for side in ("inputs", "outputs")}
    for shape in ([-1], [-1, 3])
)
_MODELS = {"failing": 'raise ValueError("it fails")', "slow": "__import__('time').sleep(0.1)"}
_MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        {}
"""
_MODEL_CONFIG = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: -1 }
output { name: "X" data_type: TYPE_FP32 dims: -1 }
"""
_DEADLINE_SECS = 60.0
_CANCEL_SECS, _REST_SECS = 0.08, 0.1


@dataclass(frozen=True, eq=False)
class Kind:
    """Requests for ``model`` on a listener with ``options``, whose errors contain ``text``. With ``cut`` only
    half of each message is sent; one that ``cancels`` ends its connection or stream after a while."""

    model: str
    text: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False
    cancels: bool = False


KINDS: Mapping[str, Kind] = {
    "no credentials": Kind("echo", "credentials", {"allow": {"inference": ["user:*"]}}),
    "unknown model": Kind("absent", "absent"),
    "wrong rank": Kind("wide", "X"),
    "half a message": Kind("echo", "", cut=True),
    "model fails": Kind("failing", "it fails"),
    "upstream down": Kind("down", "upstream"),
    "upstream refuses": Kind("refused", "X"),
    "cancelled": Kind("slow", "", cancels=True),
    "large response": Kind("echo", "max_response_bytes", {"max_response_bytes": 1 << 16}),
}


@dataclass(frozen=True)
class Failure:
    """A kind of failure over a binding, on a listener with ``engine`` at ``address``."""

    kind: str
    dialect: str
    transport: str
    engine: str
    address: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.dialect} over {self.transport}, {self.engine}"


FAILURES = tuple(
    Failure(kind, name, transport, engine)
    for kind in KINDS
    for name, dialect in DIALECTS.items()
    for transport in dialect.bindings
    for engine in ENGINES[transport]
    if transport != "tcp" or not (KINDS[kind].cut or kind == "unknown model")  # its listener states the model
)


@contextmanager
def daemon(
    folder: Path, module: Sequence[str] = ("interlingua",)
) -> Iterator[tuple[processes.Server, Mapping[str, Failure]]]:
    """The daemon, which ``module`` starts, and the failures by name."""
    for model, statement in _MODELS.items():
        version = folder / "models" / model / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(_MODEL.format(statement))
        (version.parent / "config.pbtxt").write_text(_MODEL_CONFIG)
    (folder / "tokens").write_text(f"a: sha256:{'0' * 64}\n")
    places = [
        (kind, transport, engine) for kind in KINDS for transport, own in ENGINES.items() for engine in own
    ]
    listeners = [
        {
            "listen": "127.0.0.1:0",
            "transport": transport,
            "default_model": "echo" if KINDS[kind].model == "absent" else KINDS[kind].model,
            "dialects": [name for name, dialect in DIALECTS.items() if transport in dialect.bindings],
            "max_request_bytes": 1 << 30,
            **({"engine": engine} if len(ENGINES[transport]) > 1 else {}),
            **KINDS[kind].options,
        }
        for kind, transport, engine in places
    ]
    behind = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "grpc", "max_request_bytes": 1 << 30}],
        "models": {"refused": {"backend": "identity", "signature": _WIDE}},
    }
    (folder / "behind").mkdir()
    with processes.daemon(folder / "behind", _quiet(behind)) as other:
        config = {
            "listeners": listeners,
            "auth": {"tokens": str(folder / "tokens")},
            "model_repository": [{"path": str(folder / "models")}],
            "models": {
                "echo": {"backend": "identity", "signature": _FLAT},
                "wide": {"backend": "identity", "signature": _WIDE},
                "down": {"upstream": "down", "signature": _FLAT, "required": False},
                "refused": {"upstream": "behind", "signature": _FLAT},
            },
            "upstreams": {
                "down": {"dialect": "oip", "transport": "grpc", "urls": ["127.0.0.1:9"]},
                "behind": {"dialect": "oip", "transport": "grpc", "urls": [other.addresses["grpc"]]},
            },
        }
        with processes.daemon(folder, _quiet(config), module) as server:
            bound = dict(zip(places, server.listening, strict=True))
            yield (
                server,
                {
                    each.name: replace(each, address=bound[each.kind, each.transport, each.engine])
                    for each in FAILURES
                },
            )


def _quiet(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "server": {"log_format": "json", "workers": 0}, "admin": {"listen": "127.0.0.1:0"}}


async def fail(failure: Failure, nbytes: int, count: int) -> None:
    """Send ``count`` requests with about ``nbytes`` each. Raises ``RuntimeError`` if one of them has another
    response than its error."""
    kind = KINDS[failure.kind]
    call = DIALECTS[failure.dialect].bindings[failure.transport].calls[Operation.INFER]
    request, form = _encoded(failure.dialect, failure.transport, kind, nbytes)
    client: Any = CLIENTS[failure.transport, "native"](parse_url(failure.address, failure.transport))
    try:
        for _ in range(count):
            sent = replace(request, context=Context(deadline=time.monotonic() + _DEADLINE_SECS))
            try:
                async with asyncio.timeout(_CANCEL_SECS if kind.cancels else None):
                    call.decode(form, await client.send(sent))
            except TimeoutError:
                await asyncio.sleep(_REST_SECS)  # the model runs on, and a client over HTTP may still read
            except InferenceError as error:
                if kind.text not in error.message:
                    raise RuntimeError(f"{failure.name}: {error!r}") from error
            else:
                raise RuntimeError(f"{failure.name}: the request succeeded")
    finally:
        await client.close()


@lru_cache(1)  # JSON of this size takes seconds
def _encoded(dialect: str, transport: str, kind: Kind, nbytes: int) -> tuple[Any, Any]:
    """A request of ``kind``, and the form of its response."""
    spec = TensorSpec("X", Datatype.FP32, (-1,))
    tensor = Tensor("X", Datatype.FP32, (nbytes // 4,), memoryview(bytes(nbytes)))
    model = "" if transport == "tcp" else kind.model
    call = DIALECTS[dialect].bindings[transport].calls[Operation.INFER]
    request, form = call.encode(InferRequest(model, (tensor,)), Signature((spec,), (spec,)))
    if dialect == "graphpipe" and transport == "http":
        request.path = f"/graphpipe/{model}"
    return _halved(request) if kind.cut else request, form


def _halved(request: Any) -> Any:
    whole = b"".join(getattr(request, "parts", ()) or (request.message,))
    half = whole[: len(whole) // 2]
    return replace(request, message=half) if hasattr(request, "message") else replace(request, parts=(half,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--mib", type=int, default=20, help="the size of a request")
    parser.add_argument("--only", default="", help="failures whose names contain this")
    options = parser.parse_args()
    progress.say(f"{'MiB before':>10} {'at peak':>8} {'after':>8}\n")
    with tempfile.TemporaryDirectory() as folder, daemon(Path(folder)) as (server, failures):
        chosen = [failure for name, failure in failures.items() if options.only in name]
        for failure in progress.each(chosen, lambda failure: failure.name):
            server.reset_peak()
            before = server.resident_mib()
            asyncio.run(fail(failure, options.mib << 20, options.requests))
            figures = f"{before:10.0f} {server.own_peak_mib():8.0f} {server.resident_mib():8.0f}"
            progress.say(f"{figures}  {failure.name}\n")


if __name__ == "__main__":
    main()
