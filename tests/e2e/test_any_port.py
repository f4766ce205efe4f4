"""Clients of every dialect and transport on one port, with and without TLS, in one process and in several."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import ovmsclient
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from graphpipe import remote

from interlingua.protocols.registry import DIALECTS
from tests.e2e.daemon import ROOT, WAIT_SECS, Daemon
from tests.e2e.grps_clients import CLIENTS as GRPS
from tests.standins.grps_contract import arrays_of, gtensors
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp

FILES = ROOT / "examples" / "tls"
CERT = str(FILES / "localhost.pem")
MODEL, INPUT, OUTPUT = "identity_fp32", "INPUT0", "OUTPUT0"
VALUES = np.arange(20_000, dtype=np.float32)
COUNTED = {
    (transport, dialect)
    for transport, dialects in {
        "http": ("oip", "trtis", "graphpipe", "grps", "tfserving"),
        "grpc": ("oip", "trtis", "grps", "tfserving"),
        "brpc": ("grps",),
    }.items()
    for dialect in dialects
}


@pytest.fixture(scope="module", params=[0, 2], ids=["one-process", "workers-2"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    tls = {"cert": CERT, "key": str(FILES / "localhost.key")}
    running = Daemon.start(
        tmp_path_factory.mktemp("any"),
        {
            "server": {"workers": request.param},
            "admin": {"listen": "127.0.0.1:0"},
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "any", "tls": tls, "dialects": list(DIALECTS)}
            ],
            "model_repository": [{"path": str(ROOT / "examples" / "models"), "load": [MODEL]}],
        },
    )
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def tritonclient_http(address: str) -> Any:
    with triton_http.InferenceServerClient(address) as client:
        return triton(triton_http, client)


def tritonclient_https(address: str) -> Any:
    context = {"ssl": True, "ssl_context_factory": lambda: ssl.create_default_context(cafile=CERT)}
    with triton_http.InferenceServerClient(by_name(address), **context) as client:
        return triton(triton_http, client)


def tritonclient_grpc(address: str) -> Any:
    with triton_grpc.InferenceServerClient(address) as client:
        return triton(triton_grpc, client)


def tritonclient_grpc_tls(address: str) -> Any:
    with triton_grpc.InferenceServerClient(by_name(address), ssl=True, root_certificates=CERT) as client:
        return triton(triton_grpc, client)


def triton(module: Any, client: Any) -> Any:
    given = module.InferInput(INPUT, VALUES.shape, "FP32")
    given.set_data_from_numpy(VALUES)
    return client.infer(MODEL, [given]).as_numpy(OUTPUT)


def by_name(address: str) -> str:
    """The address as the certificate has it."""
    return f"localhost:{address.rpartition(':')[2]}"


def v1(client: Any) -> Any:
    try:
        return client.infer(MODEL, {INPUT: VALUES}, [OUTPUT]).outputs[OUTPUT]
    finally:
        client.close()


def grps(transport: str, address: str) -> Any:
    client = GRPS[transport](address)
    try:
        return arrays_of(client.predict(gtensors(MODEL, **{INPUT: VALUES})))[OUTPUT]
    finally:
        client.close()


def tfserving(make: Any, address: str) -> Any:
    return make(address).predict({INPUT: VALUES}, MODEL)


CLIENTS: dict[str, Callable[[str], Any]] = {
    "tritonclient http": tritonclient_http,
    "tritonclient grpc": tritonclient_grpc,
    "tritonclient http with TLS": tritonclient_https,
    "tritonclient grpc with TLS": tritonclient_grpc_tls,
    "graphpipe": lambda address: remote.execute(f"http://{address}/graphpipe/{MODEL}", VALUES, INPUT, OUTPUT),
    "v1 http": lambda address: v1(TrtisHttp(address)),
    "v1 grpc": lambda address: v1(TrtisGrpc(address)),
    "grps http": lambda address: grps("http", address),
    "grps grpc": lambda address: grps("grpc", address),
    "grps brpc": lambda address: grps("brpc", address),
    "tfserving http": lambda address: tfserving(ovmsclient.make_http_client, address),
    "tfserving grpc": lambda address: tfserving(ovmsclient.make_grpc_client, address),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client(daemon: Daemon, name: str) -> None:
    assert np.array_equal(CLIENTS[name](daemon.addresses[0]), VALUES)


def test_grpcio(daemon: Daemon) -> None:
    with grpc.insecure_channel(daemon.addresses[0]) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert live(b"", timeout=WAIT_SECS) == b"\x08\x01"


@pytest.mark.parametrize(
    ("options", "version"),
    [
        (("--http1.1",), "1.1"),
        (("--http2-prior-knowledge",), "2"),
        (("--http2",), "1.1"),  # it asks for an upgrade, which RFC 9113 has obsoleted
        (("--http1.1", "--cacert", CERT), "1.1"),
        (("--http2", "--cacert", CERT), "2"),  # ALPN
    ],
    ids=["http1.1", "prior-knowledge", "upgrade", "tls-http1.1", "tls-alpn"],
)
def test_curl(daemon: Daemon, tmp_path: Path, options: tuple[str, ...], version: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl")
    features = subprocess.run((curl, "--version"), capture_output=True, text=True, check=True).stdout
    if "HTTP2" not in features.split():
        pytest.skip("needs curl with HTTP/2")
    tensor = {"name": INPUT, "datatype": "FP32", "shape": list(VALUES.shape), "data": VALUES.tolist()}
    asked = tmp_path / "request.json"
    asked.write_text(json.dumps({"inputs": [tensor]}))
    scheme = "https" if "--cacert" in options else "http"
    url = f"{scheme}://{by_name(daemon.addresses[0])}/v2/models/{MODEL}/infer"
    written = ("--write-out", "%{http_version} %{http_code}", "--output", str(tmp_path / "answer.json"))
    limits = ("--silent", "--show-error", "--noproxy", "*", "--max-time", str(WAIT_SECS))
    command = (curl, *limits, *options, *written, "--data", f"@{asked}", url)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{version} 200"
    (output,) = json.loads((tmp_path / "answer.json").read_text())["outputs"]
    assert output["data"] == VALUES.tolist()


def test_metrics_tell_transports_apart(daemon: Daemon) -> None:
    for client in CLIENTS.values():
        client(daemon.addresses[0])
    lines = requests.get(f"{daemon.admin}/metrics", timeout=WAIT_SECS).text.splitlines()
    name = f'interlingua_requests_total{{listener="{daemon.addresses[0]}",transport="'
    found = [line.removeprefix(name).split('"') for line in lines if line.startswith(name)]
    assert {(transport, dialect) for transport, _, dialect, *_ in found} == COUNTED
