"""Who is a client: certificates, tokens and JSON Web Tokens at every kind of listener, allowed, or refused in the
form of the dialect."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
import yaml

from interlingua.protocols import watched_files
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import Address
from interlingua.protocols.wire import HttpReply, HttpRequest
from interlingua.runtime.repository.files import Loaded
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
from interlingua.translator.access.build import authenticator_of
from interlingua.translator.admin.gate import gate_of
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.config.auth import AuthOptions
from interlingua.translator.config.identities import unused_credentials
from interlingua.translator.daemon import _listen
from interlingua.translator.reload.differences import needing_restart
from interlingua.translator.serving.processor import RequestProcessor
from tests.certificates import Authority, Issued
from tests.protocols.transport.h2.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    START,
    RawH2,
    block,
    frame,
)
from tests.standins.brpc_frames import request_frame, text
from tests.standins.grps_contract import GrpsMessage, gtensors
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
    *(("tfserving", transport, at) for transport in ("http", "grpc") for at in (transport, "any")),
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
    async def test() -> None:
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

    run(test())


async def over_http2(
    world: World, kind: tuple[str, str, str], address: Address, certificate: Issued | None, headers: Any
) -> str:
    """As :func:`outcome`, of a client over HTTP/2 and TLS."""
    context = ssl.create_default_context(cafile=world.authority.ca)
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate.cert, certificate.key)
    call = DIALECTS[kind[0]].bindings["http"].calls[Operation.INFER]
    values = np.arange(16, dtype=np.float32).reshape(1, 16)
    request = InferRequest("m", (Tensor.from_numpy("X", values),), context=Context())
    sent, form = call.encode(
        request, Signature(*((TensorSpec(name, Datatype.FP32, (-1, 16)),) for name in "XY"))
    )
    fields = [(":method", sent.method), (":scheme", "https"), (":path", sent.path), (":authority", "a")]
    fields += [(name.lower(), value) for name, value in {**sent.headers, **headers}.items()]
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        try:
            client = RawH2(reader, writer)
            head = frame(HEADERS, END_HEADERS, 1, block(fields))
            await client.send(START, head, frame(DATA, END_STREAM, 1, b"".join(sent.parts)))
            answer = await client.answer()
        finally:
            writer.close()
        reply = HttpReply(int(answer.head.pop(":status")), answer.head, answer.body)
        assert np.array_equal(call.decode(form, reply).outputs[0].numpy(), values)
    except (OSError, EOFError):
        return "UNAVAILABLE: closed"
    except InferenceError as error:
        return f"{error.code.name}: {error.message}"
    return ALLOWED


def test_http_over_http2(world: World) -> None:
    """The same listeners and the same answers, whichever version ALPN chooses."""
    kinds = [kind for kind in KINDS if kind[1] == "http"]

    async def test() -> None:
        async with served(world, world.listeners) as (_, addresses):
            wrong = []
            for kind in kinds:
                required, plain = addresses[2 * KINDS.index(kind) :][:2]
                cases: list[Any] = [
                    (required, certificate, {}, BY_CERTIFICATE[name])
                    for name, certificate in world.certificates.items()
                ]
                cases += [(plain, None, world.headers[name], BY_HEADER[name]) for name in BY_HEADER]
                for address, certificate, headers, words in cases:
                    got = await over_http2(world, kind, address, certificate, headers)
                    if not got.startswith(expected(kind[0], words)):
                        wrong.append(f"{'-'.join(kind)}: {got!r} instead of {words!r}")
            assert not wrong, "\n".join(wrong)

    run(test())


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run ``test`` on the event loop of the daemon."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)


def plain(kind: tuple[str, str, str], **options: Any) -> dict[str, Any]:
    """A listener of ``kind`` without TLS."""
    dialect, _, transport = kind
    common = {"listen": "127.0.0.1:0", "transport": transport, "dialects": [dialect], "default_model": "m"}
    return {**common, "allow": {"inference": ["user:*"]}, **options}


async def sent(address: Address, data: bytes) -> bytes:
    """What a server answers to ``data`` before it closes or waits."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(data)
    try:
        async with asyncio.timeout(20):
            return await reader.read(1 << 16)
    finally:
        writer.close()


REFUSED_HEADS = {
    ("oip", "http", "http"): ("/v2/models/m/infer", b"401 Unauthorized", b"WWW-Authenticate: Bearer"),
    ("graphpipe", "http", "http"): ("/", b"401 Unauthorized", b"WWW-Authenticate: Bearer"),
    ("trtis", "http", "http"): ("/api/infer/m", b"400 Bad Request", b"INVALID_ARG"),
    ("grps", "http", "http"): ("/grps/v1/infer/predict", b"401 Unauthorized", b"WWW-Authenticate: Bearer"),
    ("tfserving", "http", "http"): ("/v1/models/m:predict", b"401 Unauthorized", b"WWW-Authenticate: Bearer"),
}


REFUSED_CREDENTIALS = {
    "authorization: bearer wrong\r\n": b"it is unknown",
    "": b"class 'inference' need credentials",
    "x-api-key: other\r\n": b"does not permit operations of class 'inference' to this caller",
}
TRAINERS = {"allow": {name: ["user:trainer"] for name in ("inference", "metadata")}}


def test_a_body_with_a_refused_credential_is_not_read(world: World) -> None:
    """Nor one of a client without any, or of one that may not infer, if the head tells the class."""

    async def test() -> None:
        async with served(world, [plain(kind, **TRAINERS) for kind in REFUSED_HEADS]) as (_, addresses):
            for address, (path, status, form) in zip(addresses, REFUSED_HEADS.values(), strict=True):
                for line, words in REFUSED_CREDENTIALS.items():
                    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 9999999\r\n"
                    said = await sent(address, f"{head}{line}\r\n".encode())
                    forbidden = b"403 Forbidden" if b"401" in status and b"permit" in words else status
                    assert forbidden in said.partition(b"\r\n")[0], said
                    assert forbidden != status or form.lower() in said.lower(), said
                    assert words in said.replace(b"\\", b"")

    run(test())


REFUSED_CALLS = {
    ("oip", "grpc", "grpc"): "/inference.GRPCInferenceService/ModelInfer",
    ("oip", "grpc", "any"): "/inference.GRPCInferenceService/ModelStreamInfer",
    ("trtis", "grpc", "grpc"): "/nvidia.inferenceserver.GRPCService/Infer",
    ("grps", "grpc", "grpc"): "/grps.protos.v1.GrpsService/PredictStreaming",
    ("grps", "grpc", "brpc"): "/grps.protos.v1.GrpsBrpcService/Predict",
    ("tfserving", "grpc", "grpc"): "/tensorflow.serving.PredictionService/Predict",
}


def test_a_grpc_message_with_a_refused_credential_is_not_awaited(world: World) -> None:
    async def test() -> None:
        async with served(world, [plain(kind, **TRAINERS) for kind in REFUSED_CALLS]) as (_, addresses):
            for address, method in zip(addresses, REFUSED_CALLS.values(), strict=True):
                for line, words in REFUSED_CREDENTIALS.items():
                    name, _, value = line.strip().partition(": ")
                    fields = [
                        (":method", "POST"),
                        (":scheme", "http"),
                        (":path", method),
                        (":authority", "a"),
                    ]
                    fields += [("content-type", "application/grpc"), ("te", "trailers")]
                    fields += [(name, value)] if name else []
                    reader, writer = await asyncio.open_connection(address.host, address.port)
                    client = RawH2(reader, writer)
                    await client.send(START, frame(HEADERS, END_HEADERS, 1, block(fields)))
                    async with asyncio.timeout(20):
                        answer = await client.answer()
                    writer.close()
                    said = f"{answer.head} {answer.trailers} {answer.body!r}".replace("\\", "")
                    assert words.decode() in said, (method, said)

    run(test())


def test_a_brpc_message_with_a_refused_credential_is_not_decompressed(world: World) -> None:
    garbage = request_frame("Predict", b"garbage" * 100_000, compress_type=2)

    async def test() -> None:
        async with served(world, [plain(("grps", "brpc", "brpc"), **TRAINERS)]) as (_, [address]):
            said = await sent(address, garbage)
            assert b"class 'inference' need credentials" in said, said

    run(test())


def test_a_message_without_a_head_is_refused_unread(world: World) -> None:
    async def test() -> None:
        async with served(world, [plain(("graphpipe", "tcp", "tcp"), **TRAINERS)]) as (_, [address]):
            said = await sent(address, struct.pack("<I", 7) + b"garbage")
            assert b"class 'inference' need credentials" in said, said

    run(test())


def test_limits_of_clients(world: World) -> None:
    """One request, and for the next one "try again" in every dialect; other clients are answered."""
    kinds = [kind for kind in KINDS if kind[1] != "tcp"]

    async def test() -> None:
        names = [f"client{number}" for number in range(len(kinds))]
        tokens = world.folder / "limited"
        tokens.write_text(token_lines(**{name: f"secret of {name}" for name in (*names, "other")}))
        auth = {"tokens": str(tokens), "limits": {"*": {"requests_per_sec": 0.001}, "other": {}}}
        async with served(world, [plain(kind) for kind in kinds], **auth) as (assembly, addresses):
            for name, kind, address in zip(names, kinds, addresses, strict=True):
                for client, texts in ((name, (ALLOWED, "OVERLOADED: ")), ("other", (ALLOWED, ALLOWED))):
                    file = world.folder / f"{client}.token"
                    file.write_text(f"Bearer secret of {client}")
                    async with model_at(kind, address, {"authorization": {"file": str(file)}}) as model:
                        found = [await outcome(model) for _ in texts]
                    if kind[0] == "trtis":
                        found = [each.replace("UNAVAILABLE: ", "OVERLOADED: ") for each in found]
                    assert all(map(str.startswith, found, texts)), (kind, found)
            (family,) = assembly.clients.families()
            counted = {tuple(sample.labels.values()): sample.value for sample in family.samples}
            # clients of some dialects request metadata too
            assert counted["other", "OK"] >= 2 * len(kinds)
            assert all(counted[name, "OK"] >= 1 for name in names)
            assert {name for name, code in counted if code == "OVERLOADED"} == set(names)
            assert sum(count for (_, code), count in counted.items() if code != "OK") == len(kinds)
            assert sum(load.refused["requests_per_sec"] for load in assembly.loads) == len(kinds)
            assert all(not client.requests for client in assembly.clients._clients.values())

    run(test())


@asynccontextmanager
async def model_at(
    kind: tuple[str, str, str], address: Address, headers: dict[str, Any]
) -> AsyncIterator[Any]:
    """The model at ``address``, to a client that sends ``headers``."""
    there = {
        "dialect": kind[0],
        "transport": kind[1],
        "urls": [str(address)],
        "headers": headers,
        "probe_interval_secs": 0.0,
    }
    document = {
        "listeners": [{"listen": ":0", "transport": "http"}],
        "upstreams": {"there": there},
        "models": {"m": {"upstream": "there", "signature": SIGNATURE}},
    }
    assembly = assemble(parse(yaml.safe_dump(document)), Loaded())
    try:
        yield assembly.service.router.models["m"]
    finally:
        await assembly.close()


def test_a_revoked_token_is_refused_on_open_connections(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_files, "CHECK_SECS", 0.0)
    tokens, kind = tmp_path / "tokens", ("oip", "grpc", "grpc")
    tokens.write_text(token_lines(ann="secret"))
    (tmp_path / "header").write_text("secret")

    async def test() -> None:
        async with (
            served(world, [plain(kind)], tokens=str(tokens)) as (_, [address]),
            model_at(kind, address, {"x-api-key": {"file": str(tmp_path / "header")}}) as model,
        ):
            assert await outcome(model) == ALLOWED
            tokens.write_text("# none\n")
            assert await outcome(model) == f"UNAUTHENTICATED: {UNKNOWN}"

    run(test())


def test_a_credential_of_a_brpc_connection(world: World) -> None:
    """``authentication_data`` of the first frame is for the next ones too."""
    credential = text(7, "right")

    async def test() -> None:
        async with served(world, [plain(("grps", "brpc", "brpc"))]) as (_, [address]):
            predict = gtensors("m", X=np.zeros((1, 16), np.float32)).SerializeToString()
            for first, codes in ((b"", [401, 401]), (credential, [200, 200]), (text(7, "no"), [401, 401])):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                found = []
                for extra in (first, b""):
                    writer.write(request_frame("Predict", predict, extra=extra))
                    _, size, meta = struct.unpack(">4sII", await reader.readexactly(12))
                    body = await reader.readexactly(size)
                    found.append(GrpsMessage.FromString(body[meta:]).status.code)
                writer.close()
                assert found == codes

    run(test())


def test_no_secret_is_recorded(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the identity of a client, and of a refused one the reason."""
    caplog.set_level(logging.DEBUG)
    allow = {"logging": ["user:trainer"]}

    async def test() -> None:
        async with served(world, [plain(KINDS[0], allow=allow)]) as (_, [address]):
            for header, status in (
                ("authorization: Bearer right", b"200"),
                ("x-api-key: other", b"403"),
                ("x-api-key: wrong-secret", b"401"),
                ("x-none: 1", b"401"),
            ):
                data = f"GET /v2/logging HTTP/1.1\r\nhost: a\r\n{header}\r\n\r\n"
                assert (await sent(address, data.encode())).split()[1] == status

    run(test())
    found = [
        (record.getMessage(), record.facts.get("identity"), record.facts.get("result"))
        for record in caplog.records
        if record.name == "interlingua.audit"
    ]
    assert found == [
        ("privileged operation", "trainer", "allowed"),
        ("privileged operation", "reader", "refused"),
        ("authentication failed", None, None),
        ("privileged operation", None, "refused"),
    ]
    logged = "\n".join(str(record.__dict__) for record in caplog.records)
    assert not any(secret in logged for secret in ("right", "wrong-secret", "Bearer"))


def test_the_admin_address(world: World) -> None:
    document = {
        "listeners": [{"listen": ":0", "transport": "http"}],
        "auth": {"tokens": str(world.folder / "tokens")},
        "admin": {"listen": "127.0.0.1:0", "allow": {"statistics": ["user:trainer"], "health": ["anyone"]}},
    }
    config = parse(yaml.safe_dump(document))
    gate = gate_of(config.admin, config.auth)
    for headers, statistics in (
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"x-api-key": "other"}, 403),
        ({"authorization": "Bearer right"}, None),
    ):
        for path, status in (
            ("/metrics", statistics),
            ("/health/live", 401 if "wrong" in str(headers) else None),
        ):
            context = Context(peer="127.0.0.1", headers=headers)
            refusal = gate.refusal(HttpRequest("GET", path, "", headers, context=context))
            assert (refusal and refusal[0]) == status, (path, headers)
            if refusal is not None:
                assert (("WWW-Authenticate", "Bearer") in refusal[2]) is (status == 401)


def test_options_that_need_a_restart(world: World) -> None:
    users, none = {"allow": {"statistics": ["user:ops"]}}, {}
    tokens = {"tokens": str(world.folder / "tokens")}
    limited = {**tokens, "limits": {"*": {"max_requests": 1}}}

    def config(auth: Any, admin: Any, workers: int = 0) -> Any:
        document = {
            "server": {"workers": workers},
            "listeners": [{"listen": ":1", "transport": "http"}],
            "admin": {"listen": ":2", **admin},
            "auth": auth,
        }
        return parse(yaml.safe_dump(document))

    other = {**tokens, "api_key_header": "x-other"}
    assert needing_restart(config(tokens, none), config(other, none)) == []
    assert needing_restart(config(tokens, users), config(limited, users)) == []
    assert needing_restart(config(tokens, users), config(other, users)) == [
        "auth.api_key_header, which admin.allow uses"
    ]
    assert needing_restart(config(tokens, none, 2), config(limited, none, 2)) == [
        "auth.limits, the first ones with server.workers"
    ]


def test_a_listener_that_stays_follows_other_credentials(world: World, tmp_path: Path) -> None:
    """As a reload does, on open connections."""
    (tmp_path / "tokens").write_text(token_lines(trainer="new"))

    async def test() -> None:
        async with served(world, [plain(KINDS[0])]) as (assembly, _):
            (options,) = assembly.config.listeners
            before, after = assembly.pipeline(options), assembly.pipeline(options)
            tokens = AuthOptions(tokens=str(tmp_path / "tokens"))
            after.authorization = replace(after.authorization, authenticator=authenticator_of(tokens))
            path = "/v2/models/m/infer"
            for successor, token, status in (
                (None, "right", None),
                (None, "new", 401),
                (RequestProcessor(assembly.service, "", authorization=after.authorization), "right", 401),
                (None, "new", None),
                (RequestProcessor(assembly.service, ""), "any", None),
            ):
                if successor is not None:
                    before._processor.follow(successor)
                headers = {"authorization": f"Bearer {token}"}
                context = Context(headers=headers)
                answer = before.handlers["http"].head(HttpRequest("POST", path, "", headers, context=context))
                assert (answer and answer.status) == status, token

    run(test())


@pytest.mark.parametrize(
    ("allow", "warned"), [({}, True), ({"inference": ["local"]}, True), ({"control": ["user:ann"]}, False)]
)
def test_credentials_that_no_client_needs(world: World, allow: Any, warned: bool) -> None:
    document = {
        "listeners": [{"listen": ":0", "transport": "http", "allow": allow}],
        "auth": {"tokens": str(world.folder / "tokens")},
    }
    assert [path for path, _ in unused_credentials(parse(yaml.safe_dump(document)))] == [("auth",)] * warned
