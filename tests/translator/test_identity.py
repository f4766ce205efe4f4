"""Who is a client: certificates, tokens and JSON Web Tokens at every kind of listener, allowed, or refused in the
form of the dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
import yaml

from interlingua.protocols.transport.address import Address
from interlingua.runtime.repository.files import Loaded
from interlingua.schemas import Context, InferenceError, InferRequest, Tensor
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.daemon import _listen
from tests.certificates import Authority, Issued
from tests.translator.access.credentials import AUDIENCE, ISSUER, Issuer, token_lines

SPEC = {"datatype": "FP32", "shape": [-1, 16]}
SIGNATURE = {"inputs": [{"name": "X", **SPEC}], "outputs": [{"name": "Y", **SPEC}]}
KINDS = (
    *(("oip", "http", at) for at in ("http", "any")),
    *(("oip", "grpc", at) for at in ("grpc", "any")),
    *(("trtis", transport, transport) for transport in ("http", "grpc")),
    *(("graphpipe", transport, transport) for transport in ("http", "tcp")),
    *(("grps", transport, transport) for transport in ("http", "grpc", "brpc")),
    ("grps", "brpc", "any"),
)
"""Each dialect, the transport of its client, and that of the listener."""

ALLOWED = "allowed"
CLOSED = "the connection is closed"
MISSING = "operations of class 'inference' need credentials"
UNKNOWN = "the token is not accepted: it is unknown"
EXPIRED = "the token is not accepted: it has expired"
SCOPE = "this listener does not permit operations of class 'inference' to this caller"

BY_CERTIFICATE = {
    "good": ALLOWED,
    "expired": CLOSED,
    "wrong CA": CLOSED,
    "wrong name": CLOSED,
    "no certificate": CLOSED,
    "wrong scope": SCOPE,
}
BY_HEADER = {
    "good": ALLOWED,
    "good key": ALLOWED,
    "good JWT": ALLOWED,
    "missing": MISSING,
    "revoked": UNKNOWN,
    "expired JWT": EXPIRED,
    "wrong scope": SCOPE,
    "wrong scope JWT": SCOPE,
}


@dataclass(frozen=True)
class World:
    """Listeners of each kind that know clients by certificates, and those that know them by headers."""

    authority: Authority
    certificates: dict[str, Issued | None]
    headers: dict[str, dict[str, str]]
    folder: Path

    @property
    def listeners(self) -> list[dict[str, Any]]:
        own = self.authority.issue("127.0.0.1")
        tls = {"cert": own.cert, "key": own.key}
        required = {
            **tls,
            "client_ca": self.authority.ca,
            "client": "require",
            "match_subject_alt_names": ["trainer.*", "reader.*"],
        }
        common = {"listen": "127.0.0.1:0", "default_model": "m"}
        allow = {"inference": ["user:trainer", "user:trainer.example"]}
        return [
            {**common, "transport": at, "dialects": [dialect], "tls": options, "allow": allow}
            for dialect, _, at in KINDS
            for options in (required, tls)
        ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    authority, stranger = Authority(folder / "authority"), Authority(folder / "stranger")
    issuer = Issuer(folder)
    (folder / "tokens").write_text(token_lines(trainer="right", reader="other"))
    trainer = "trainer.example"
    certificates = {
        "good": authority.issue(trainer),
        "expired": authority.issue(trainer, expired=True),
        "wrong CA": stranger.issue(trainer),
        "wrong name": authority.issue("other.example"),
        "no certificate": None,
        "wrong scope": authority.issue("reader.example"),
    }
    headers = {
        "good": {"authorization": "Bearer right"},
        "good key": {"x-api-key": "right"},
        "good JWT": {"authorization": f"Bearer {issuer.issue('trainer')}"},
        "missing": {},
        "revoked": {"authorization": "Bearer wrong"},
        "expired JWT": {"authorization": f"Bearer {issuer.issue('trainer', -600)}"},
        "wrong scope": {"x-api-key": "other"},
        "wrong scope JWT": {"x-api-key": issuer.issue("reader")},
    }
    return World(authority, certificates, headers, folder)


@asynccontextmanager
async def served(
    world: World, listeners: list[dict[str, Any]], **auth: Any
) -> AsyncIterator[tuple[Any, list[Address]]]:
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": str(world.folder / "jwks.json")}
    document = {
        "listeners": listeners,
        "auth": {"tokens": str(world.folder / "tokens"), "jwt": jwt, **auth},
        "models": {"m": {"backend": "identity", "signature": SIGNATURE}},
    }
    config = parse(yaml.safe_dump(document))
    assembly = assemble(config, load_local(config))
    bound = await _listen(assembly)
    try:
        yield assembly, [each.address for each in bound]
    finally:
        await asyncio.gather(*(each.server.stop(0) for each in bound))
        await assembly.close()


def upstream(world: World, kind: tuple[str, str, str], address: Address, case: str) -> dict[str, Any]:
    """A client of ``kind`` that presents what it has in ``case``."""
    dialect, transport, _ = kind
    certificate, headers = world.certificates.get(case), world.headers.get(case.removesuffix(" header"), {})
    tls = {"ca": world.authority.ca}
    if certificate is not None:
        tls |= {"cert": certificate.cert, "key": certificate.key}
    files = {}
    for name, value in headers.items() if case.endswith(" header") else ():
        file = world.folder / f"{case}.{name}"
        file.write_text(value)
        files[name] = {"file": str(file)}
    found = {"dialect": dialect, "transport": transport, "urls": [str(address)], "tls": tls}
    return {**found, "probe_interval_secs": 0.0, **({"headers": files} if files else {})}


async def outcome(model: Any) -> str:
    """What the client reads that has the upstream ``model``."""
    values = np.arange(16, dtype=np.float32).reshape(1, 16)
    try:
        request = InferRequest("m", (Tensor.from_numpy("X", values),), context=Context())
        answer = await model.infer(request)
    except InferenceError as error:
        return f"{error.code.name}: {error.message}"
    assert np.array_equal(answer.outputs[0].numpy(), values)
    return ALLOWED


def expected(dialect: str, text: str) -> tuple[str, ...]:
    """The beginnings of what a client of ``dialect`` may read."""
    if text == ALLOWED:
        return (ALLOWED,)
    if text == CLOSED:
        return ("UNAVAILABLE: ", "BAD_UPSTREAM: ")
    code = "FORBIDDEN" if text == SCOPE else "UNAUTHENTICATED"
    return (f"{'INVALID_TENSOR' if dialect == 'trtis' else code}: {text}",)


def test_every_kind_of_listener(world: World) -> None:
    async def run() -> None:
        async with served(world, world.listeners) as (_, addresses):
            said = {}
            for number, kind in enumerate(KINDS):
                required, plain = addresses[2 * number : 2 * number + 2]
                for case, text in BY_CERTIFICATE.items():
                    said[f"{'-'.join(kind)}, {case}"] = (upstream(world, kind, required, case), kind, text)
                for case, text in () if kind[1] == "tcp" else BY_HEADER.items():
                    client = upstream(world, kind, plain, f"{case} header")
                    said[f"{'-'.join(kind)}, {case} header"] = (client, kind, text)
            document = {
                "listeners": [{"listen": ":0", "transport": "http"}],
                "upstreams": {name: client for name, (client, _, _) in said.items()},
                "models": {
                    name: {
                        "upstream": name,
                        "signature": SIGNATURE,
                        **({} if kind[1] == "tcp" else {"remote_model": "m"}),
                    }
                    for name, (_, kind, _) in said.items()
                },
            }
            clients = assemble(parse(yaml.safe_dump(document)), Loaded())
            try:
                models = clients.service.router.models
                found = await asyncio.gather(*(outcome(models[name]) for name in said))
            finally:
                await clients.close()
            wrong = [
                f"{name}: {got!r} instead of {text!r}"
                for (name, (_, kind, text)), got in zip(said.items(), found, strict=True)
                if not got.startswith(expected(kind[0], text))
            ]
            assert not wrong, "\n".join(wrong)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
