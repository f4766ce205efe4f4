"""The threats of docs/security.md, each against a daemon: the page names the test of each row."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests

from benchmarks.cases import CONFIG
from interlingua.schemas.oip import MESSAGES
from interlingua.schemas.tfserving import MESSAGES as TFSERVING
from interlingua.translator.access.classes import CLASSES, PRIVILEGED
from tests.certificates import Authority
from tests.chaos.world import listener as every_dialect
from tests.e2e.daemon import ROOT, Daemon
from tests.standins.grps_contract import GrpsMessage
from tests.waiting import eventually

PAGE = ROOT / "docs" / "security.md"
SECRET = "c0rrect-horse"
REMOTE = "203.0.113.9"
INFER = {"inputs": [{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}]}

READING = {
    "inference": ("POST", "/v2/models/digits/infer", INFER),
    "metadata": ("GET", "/v2/models/digits", None),
    "health": ("GET", "/v2/health/ready", None),
    "statistics": ("GET", "/v2/models/stats", None),
}
PRIVILEGES = {
    "control": [
        ("POST", "/v2/repository/models/digits/load", {}),
        ("POST", "/v2/repository/models/digits/unload", {}),
        ("POST", "/v2/repository/any/models/digits/unload", {}),
        ("POST", "/api/modelcontrol/unload/digits", None),
    ],
    "shared_memory": [
        ("POST", "/v2/systemsharedmemory/region/r/register", {"key": "/none", "offset": 0, "byte_size": 8}),
        ("POST", "/v2/systemsharedmemory/unregister", None),
        ("GET", "/v2/systemsharedmemory/status", None),
        ("GET", "/v2/cudasharedmemory/status", None),
        ("POST", "/api/sharedmemorycontrol/unregisterall", None),
        ("GET", "/api/sharedmemorycontrol/status", None),
    ],
    "logging": [
        ("POST", "/v2/logging", {"log_info": False, "log_warning": False, "log_error": False}),
        ("GET", "/v2/logging", None),
        ("POST", "/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}),
        ("GET", "/v2/models/digits/trace/setting", None),
    ],
    "server": [
        ("GET", "/grps/v1/health/offline", None),
        ("HEAD", "/grps/v1/health/offline", None),
        ("POST", "/grps/v1/health/offline", None),
        ("GET", "/grps/v1/health/online", None),
    ],
}
RPCS = {
    "control": ["RepositoryModelLoad", "RepositoryModelUnload"],
    "shared_memory": ["SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus"],
    "logging": ["LogSettings", "TraceSetting"],
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Listeners of both engines behind a trusted proxy: a request with X-Forwarded-For is of that client. The
    first four have the defaults, the next four state their callers, and on the last, as at the admin address,
    nobody may do what is privileged."""
    folder = tmp_path_factory.mktemp("security")
    (folder / "key").write_text(f"{SECRET}\n")
    key = f"key:x-admin-key={folder / 'key'}"
    stated: dict[str, list[str]] = {name: [key] for name in CLASSES}
    listeners = [
        {
            **every_dialect(transport),
            "engine": engine,
            "trusted_proxies": ["127.0.0.1"],
            **({"allow": allow} if allow else {}),
        }
        for allow in ({}, stated)
        for transport in ("http", "grpc")
        for engine in ("native", "library")
    ]
    nobody: dict[str, list[str]] = {name: [] for name in PRIVILEGED}
    listeners.append({**every_dialect("http"), "allow": nobody})
    started = Daemon.start(
        folder,
        {
            "server": {"audit_log": str(folder / "audit.log")},
            "listeners": listeners,
            "admin": {"listen": "127.0.0.1:0", "allow": {**nobody, "inference": []}},
            "model_repository": [
                {"path": str(ROOT / "examples" / "models"), "load": ["digits"], "control": "explicit"}
            ],
        },
    )
    yield started
    started.kill()


@pytest.fixture(params=[0, 1], ids=["native", "library"])
def http(daemon: Daemon, request: pytest.FixtureRequest) -> str:
    """The address of a listener over HTTP with the default callers."""
    return f"http://{daemon.addresses[request.param]}"


@pytest.fixture(params=[2, 3], ids=["native", "library"])
def rpc(daemon: Daemon, request: pytest.FixtureRequest) -> str:
    return daemon.addresses[request.param]


@pytest.fixture(params=[4, 5], ids=["native", "library"])
def keyed_http(daemon: Daemon, request: pytest.FixtureRequest) -> str:
    """The address of a listener over HTTP that permits everything to callers with a key, and to no other."""
    return f"http://{daemon.addresses[request.param]}"


@pytest.fixture(params=[6, 7], ids=["native", "library"])
def keyed_rpc(daemon: Daemon, request: pytest.FixtureRequest) -> str:
    return daemon.addresses[request.param]


@pytest.fixture
def admin(daemon: Daemon) -> str:
    return f"http://{daemon.until('admin listening')['address']}"


def send(at: str, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body)
    return requests.request(method, at + path, data=data, headers=named, timeout=10)


def says(answer: requests.Response) -> str:
    """The error of an answer in any dialect."""
    return f"{answer.text} {answer.headers.get('NV-Status', '')}".replace("\\'", "'")


def is_refused(answer: requests.Response, requested: str) -> bool:
    named = answer.request.method == "HEAD" or f"'{requested}'" in says(answer)
    return answer.status_code in (400, 403) and named and SECRET not in says(answer)


def call(at: str, name: str, message: Any = None, **metadata: str) -> tuple[grpc.StatusCode, str]:
    """The status of a call of the Open Inference Protocol."""
    request = MESSAGES[f"inference.{name}Request"]() if message is None else message
    pairs = tuple((key.replace("_", "-"), value) for key, value in metadata.items())
    with grpc.insecure_channel(at) as channel:
        method = channel.unary_unary(f"/inference.GRPCInferenceService/{name}")
        try:
            method(request.SerializeToString(), timeout=10, metadata=pairs)
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def test_a_remote_client_reads(http: str, rpc: str) -> None:
    for method, path, body in READING.values():
        assert send(http, method, path, body, x_forwarded_for=REMOTE).status_code == 200, path
    for name in ("ServerLive", "ModelStatistics", "RepositoryIndex"):
        assert call(rpc, name, x_forwarded_for=REMOTE)[0] is grpc.StatusCode.OK


def test_a_remote_client_reads_what_is_allowed(keyed_http: str, keyed_rpc: str) -> None:
    for requested, (method, path, body) in READING.items():
        for headers in ({}, {"x_forwarded_for": REMOTE}):
            assert is_refused(send(keyed_http, method, path, body, **headers), requested)
        assert send(keyed_http, method, path, body, x_admin_key=SECRET).status_code == 200
    for headers in ({}, {"x_forwarded_for": REMOTE}):
        code, said = call(keyed_rpc, "ServerLive", **headers)
        assert (code, "'health'" in said) == (grpc.StatusCode.UNAVAILABLE, True)
    assert call(keyed_rpc, "ServerLive", x_admin_key=SECRET)[0] is grpc.StatusCode.OK


@pytest.mark.parametrize("requested", PRIVILEGES)
def test_a_remote_client_changes_nothing(http: str, rpc: str, requested: str) -> None:
    for method, path, body in PRIVILEGES[requested]:
        answer = send(http, method, path, body, x_forwarded_for=REMOTE)
        # the option of shared memory refuses remote callers first, as Triton does
        unsupported = requested == "shared_memory" and "shared memory to clients on its own machine" in says(
            answer
        )
        assert unsupported or is_refused(answer, requested), (path, says(answer))
    for name in RPCS.get(requested, ()):
        code, said = call(rpc, name, x_forwarded_for=REMOTE)
        assert code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED), (name, said)
    if requested == "server":
        assert offline_by_grpc(rpc, REMOTE) == 403
    for path in ("/v2/models/digits/ready", "/v2/health/ready", "/grps/v1/health/ready", "/api/health/ready"):
        assert send(http, "GET", path).status_code == 200
    assert send(http, "GET", "/v2/logging").json()["log_error"] is True


def offline_by_grpc(at: str, client: str) -> int:
    with grpc.insecure_channel(at) as channel:
        method = channel.unary_unary("/grps.protos.v1.GrpsService/Offline")
        answer = method(b"", timeout=10, metadata=(("x-forwarded-for", client),) if client else ())
    return int(GrpsMessage.FromString(answer).status.code)


def test_a_local_client_is_permitted(daemon: Daemon, http: str, rpc: str) -> None:
    assert send(http, "POST", "/v2/repository/models/digits/load", {}).status_code == 200
    assert send(http, "GET", "/v2/systemsharedmemory/status").status_code == 200
    assert send(http, "POST", "/v2/logging", {"log_verbose_level": 0}).status_code == 200
    assert call(rpc, "LogSettings")[0] is grpc.StatusCode.OK
    for requested, operations in PRIVILEGES.items():
        for method, path, body in operations:
            assert is_refused(send(f"http://{daemon.addresses[8]}", method, path, body), requested), path


def test_offline_is_for_grps_alone(http: str, rpc: str) -> None:
    try:
        assert offline_by_grpc(rpc, "") == 200
        assert send(http, "GET", "/grps/v1/health/ready").status_code == 503
        for path in ("/v2/health/ready", "/api/health/ready", "/control/is_ready"):
            assert send(http, "GET", path).status_code == 200
        assert call(rpc, "ServerReady")[0] is grpc.StatusCode.OK
    finally:
        assert send(http, "POST", "/grps/v1/health/online").status_code == 200
    assert send(http, "GET", "/grps/v1/health/ready").status_code == 200


CROSS_SITE = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:1"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    # an image over plain HTTP, from another machine
    {"user_agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"},
)


@pytest.mark.parametrize("requested", PRIVILEGES)
def test_a_page_of_another_site_changes_nothing(http: str, keyed_http: str, requested: str) -> None:
    for method, path, body in PRIVILEGES[requested]:
        for headers in CROSS_SITE:
            assert is_refused(send(http, method, path, body, **headers), requested), path
            assert is_refused(send(keyed_http, method, path, body, x_admin_key=SECRET, **headers), requested)


def test_a_page_of_another_site_reads_no_answer(http: str, keyed_http: str, admin: str) -> None:
    for method, path, body in (*READING.values(), ("OPTIONS", "/v2/models/digits/infer", None)):
        answer = send(http, method, path, body, origin="http://evil.example")
        assert (answer.status_code == 200) is (method != "OPTIONS")
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    answer = send(admin, "GET", "/metrics", origin="http://evil.example")
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    method, path, body = READING["inference"]
    assert is_refused(send(keyed_http, method, path, body, origin="http://evil.example"), "inference")


@pytest.mark.parametrize("requested", PRIVILEGES)
def test_a_page_that_rebinds_its_domain_changes_nothing(http: str, requested: str) -> None:
    for method, path, body in PRIVILEGES[requested]:
        rebound = {"host": "evil.example:8000", "origin": "http://evil.example:8000"}
        assert is_refused(send(http, method, path, body, **rebound), requested)
        assert is_refused(send(http, method, path, body, host="evil.example"), requested)


def test_a_page_that_rebinds_its_domain_reads_no_page_of_the_admin(admin: str) -> None:
    for path in ("/", "/metrics", "/models", "/view", "/server", "/nothing"):
        answer = send(admin, "GET", path, host="evil.example:8002")
        assert (answer.status_code, "interlingua_" in answer.text) == (421, False)
    assert send(admin, "GET", "/metrics").status_code == 200
    assert send(admin, "GET", "/health/live", host="evil.example").status_code == 200


@pytest.mark.parametrize("forged", ["127.0.0.1", "::1", "127.0.0.1, 127.0.0.1", "localhost", "unix"])
def test_a_client_behind_a_proxy_forges_no_address(http: str, rpc: str, forged: str) -> None:
    for separator in (", ", ","):
        sent = f"{forged}{separator}{REMOTE}"
        assert is_refused(
            send(http, "POST", "/v2/repository/models/digits/unload", {}, x_forwarded_for=sent), "control"
        )
        assert call(rpc, "LogSettings", x_forwarded_for=sent)[0] is grpc.StatusCode.PERMISSION_DENIED
    with grpc.insecure_channel(rpc) as channel:
        method = channel.unary_unary("/inference.GRPCInferenceService/LogSettings")
        pairs = (("x-forwarded-for", forged), ("x-forwarded-for", REMOTE))
        with pytest.raises(grpc.RpcError) as refused:
            method(b"", timeout=10, metadata=pairs)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    host, _, port = http.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        lines = f"X-Forwarded-For: {forged}\r\nX-Forwarded-For: {REMOTE}\r\nX-Forwarded-For: \r\n"
        connection.sendall(
            f"GET /v2/logging HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{lines}\r\n".encode()
        )
        assert b"403" in connection.makefile("rb").readline()


def test_a_client_without_the_key_is_refused(keyed_http: str, keyed_rpc: str) -> None:
    load = ("POST", "/v2/repository/models/digits/load", {})
    for sent in (
        {},
        {"x_admin_key": ""},
        {"x_admin_key": SECRET[:-1]},
        {"x_admin_key": f"{SECRET}, {SECRET}"},
    ):
        answer = send(keyed_http, *load, **sent)
        assert answer.status_code == 403
        assert answer.json()["error"].startswith("This API is restricted, expecting header 'x-admin-key'")
        code, said = call(keyed_rpc, "RepositoryModelLoad", **sent)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert said.startswith("This protocol is restricted, expecting header 'x-admin-key'")
    assert send(keyed_http, *load, x_admin_key=SECRET).status_code == 200
    request = MESSAGES["inference.RepositoryModelLoadRequest"](model_name="digits")
    assert call(keyed_rpc, "RepositoryModelLoad", request, x_admin_key=SECRET)[0] is grpc.StatusCode.OK


def test_another_spelling_of_an_operation_is_none(http: str) -> None:
    """Other methods, escapes and forms of a path are not the operation, or are refused like it."""
    spellings = [
        ("POST", "/v2/repository/models/digits/%75nload"),
        ("POST", "/v2/%72epository/models/digits/unload"),
        ("POST", "//v2/repository/models/digits/unload"),
        ("POST", "/v2/./repository/models/digits/unload"),
        ("POST", "/v2/models/../repository/models/digits/unload"),
        ("POST", "/V2/repository/models/digits/unload"),
        ("POST", "/v2/repository/models/digits/unload/"),
        ("POST", "/v2/repository/models/digits/unload?a=b"),
        ("PUT", "/v2/repository/models/digits/unload"),
        ("GET", "/v2/repository/models/digits/unload"),
        ("OPTIONS", "/v2/repository/models/digits/unload"),
        ("POST", "/grps/v1/health/offline/"),
        ("POST", "/grps/v1/health/%6fffline"),
        ("PUT", "/grps/v1/health/offline"),
        ("OPTIONS", "/grps/v1/health/offline"),
    ]
    host, _, port = http.removeprefix("http://").partition(":")
    for method, target in spellings:
        for form in (target, f"http://localhost{target}"):
            for override in ("", "X-HTTP-Method-Override: POST\r\n", "X-Original-URL: /v2/logging\r\n"):
                with socket.create_connection((host, int(port)), 10) as connection:
                    head = f"{method} {form} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{override}"
                    head += f"X-Forwarded-For: {REMOTE}\r\nContent-Length: 2\r\n\r\n{{}}"
                    connection.sendall(head.encode())
                    status = connection.makefile("rb").readline()
                assert method == "OPTIONS" or b" 200 " not in status, (method, form, status)
    assert send(http, "GET", "/v2/models/digits/ready").status_code == 200
    assert send(http, "GET", "/grps/v1/health/ready").status_code == 200


PREDICTION, MODELS = "/tensorflow.serving.PredictionService/", "/tensorflow.serving.ModelService/"


def tfserving(at: str, method: str, message: Any, **metadata: str) -> tuple[grpc.StatusCode, str]:
    """The status of a call of TensorFlow Serving's dialect."""
    pairs = tuple((key.replace("_", "-"), value) for key, value in metadata.items())
    with grpc.insecure_channel(at) as channel:
        try:
            channel.unary_unary(method)(message.SerializeToString(), timeout=10, metadata=pairs)
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def listing(*names: str, folder: Path = ROOT / "examples" / "models") -> Any:
    """A request that has these models be all that are served."""
    config = [
        {"name": name, "base_path": str(folder / name), "model_platform": "tensorflow"} for name in names
    ]
    return TFSERVING["tensorflow.serving.ReloadConfigRequest"](
        config={"model_config_list": {"config": config}}
    )


def test_a_list_of_models_is_of_permitted_callers(daemon: Daemon, rpc: str, tmp_path: Path) -> None:
    method, keyed_rpc = f"{MODELS}HandleReloadConfigRequest", daemon.addresses[6]
    # few refusals of a caller are recorded
    remote = f"198.51.100.{78 + daemon.addresses.index(rpc)}"
    forbidden = grpc.StatusCode.PERMISSION_DENIED
    for headers in ({"x_forwarded_for": remote}, *CROSS_SITE):
        # browsers send no gRPC, but the header counts wherever it is
        metadata = {name: value for name, value in headers.items() if name != "user_agent"}
        if metadata:
            assert tfserving(rpc, method, listing("digits"), **metadata)[0] is forbidden, metadata
    assert tfserving(keyed_rpc, method, listing())[0] is forbidden
    assert tfserving(rpc, method, listing("digits", folder=tmp_path))[0] is grpc.StatusCode.NOT_FOUND
    assert send(f"http://{daemon.addresses[0]}", "GET", "/v2/models/digits/ready").status_code == 200
    for at, headers in ((rpc, {}), (keyed_rpc, {"x_admin_key": SECRET})):
        assert tfserving(at, method, listing("digits"), **headers)[0] is grpc.StatusCode.OK
    folder = Path(daemon.process.args[-1]).parent  # type: ignore[index, arg-type]
    records = [json.loads(line) for line in (folder / "audit.log").read_text().splitlines()]
    found = [
        (each["result"], each["caller"], each.get("model"), each.get("key"))
        for each in records
        if each["operation"] == "models_reload"
    ]
    assert ("refused", remote, "digits", None) in found
    assert ("failed", "127.0.0.1", "digits", None) in found
    assert found[-2:] == [
        ("allowed", "127.0.0.1", "digits", None),
        ("allowed", "127.0.0.1", "digits", "x-admin-key"),
    ]


def test_the_operations_of_tensorflow_serving(keyed_http: str, keyed_rpc: str) -> None:
    model, forbidden = "/v1/models/digits", grpc.StatusCode.PERMISSION_DENIED
    for requested, method, path in (
        ("inference", "POST", f"{model}:predict"),
        ("inference", "POST", f"{model}:classify"),
        ("inference", "POST", f"{model}:regress"),
        ("metadata", "GET", f"{model}/metadata"),
        ("metadata", "GET", model),
        ("health", "GET", "/v1/models"),
    ):
        body = {"instances": [[0] * 64], "examples": [{"image": [0] * 64}]}
        assert is_refused(send(keyed_http, method, path, body), requested)
        assert send(keyed_http, method, path, body, x_admin_key=SECRET).status_code in (200, 400), path
    spec = {"name": "digits"}
    for rpc, kind, fields in (
        (f"{PREDICTION}Predict", "Predict", {}),
        (f"{PREDICTION}Classify", "Classification", {}),
        (f"{PREDICTION}Regress", "Regression", {}),
        (f"{PREDICTION}GetModelMetadata", "GetModelMetadata", {"metadata_field": ["signature_def"]}),
        (f"{MODELS}GetModelStatus", "GetModelStatus", {}),
    ):
        request = TFSERVING[f"tensorflow.serving.{kind}Request"](model_spec=spec, **fields)
        assert tfserving(keyed_rpc, rpc, request)[0] is forbidden, rpc
        assert tfserving(keyed_rpc, rpc, request, x_admin_key=SECRET)[0] is not forbidden, rpc


def test_a_client_that_may_load_models_overrides_nothing(http: str) -> None:
    config = {"parameters": {"config": json.dumps({"backend": "python"})}}
    files = {"parameters": {**config["parameters"], "file:1/model.py": "cHJpbnQoKQ=="}}
    for body in (config, files):
        answer = send(http, "POST", "/v2/repository/models/digits/load", body)
        assert (answer.status_code, "does not allow clients" in answer.text) == (403, True)
    assert send(http, "POST", "/v2/repository/models/..%2Fdigits/load", {}).status_code >= 400
    assert send(http, "GET", "/v2/models/digits/ready").status_code == 200


def test_a_client_that_may_change_the_log_chooses_no_file_and_hides_no_record(
    daemon: Daemon, http: str
) -> None:
    for path, name in (("/v2/logging", "log_file"), ("/v2/trace/setting", "trace_file")):
        answer = send(http, "POST", path, {name: "/etc/passwd"})
        assert (answer.status_code >= 400, "can not be updated" in answer.text) == (True, True)
    levels = ("log_info", "log_warning", "log_error")
    try:
        assert send(http, "POST", "/v2/logging", dict.fromkeys(levels, False)).status_code == 200
        send(http, "POST", "/v2/repository/models/hidden/unload", {})
    finally:
        assert send(http, "POST", "/v2/logging", dict.fromkeys(levels, True)).status_code == 200
    # one that was not refused before, since few refusals of a caller are recorded
    remote = "198.51.100.77"
    send(http, "POST", "/v2/repository/models/secret/load", {}, x_admin_key=SECRET, x_forwarded_for=remote)
    folder = Path(daemon.process.args[-1]).parent  # type: ignore[index, arg-type]
    text = (folder / "audit.log").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert SECRET not in text
    hidden = [each for each in records if each.get("model") == "hidden"]
    assert {(each["operation"], each["class"], each["caller"]) for each in hidden} == {
        ("model_unload", "control", "127.0.0.1")
    }
    refused = [each for each in records if each.get("model") == "secret"]
    assert {(each["result"], each["caller"]) for each in refused} == {("refused", remote)}
    # the log comes through a pipe
    eventually(
        lambda: any(
            line.get("model") == "hidden" and line["event"] == "privileged operation" for line in daemon.log
        )
    )


def test_the_admin_address_changes_nothing(admin: str) -> None:
    for path in ("/", "/models", "/health/live"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert send(admin, method, path, {}).status_code == 405
    for path in ("/v2/logging", "/grps/v1/health/offline", "/v2/repository/models/digits/unload"):
        assert send(admin, "POST", path, {}).status_code == 404
    for path in ("/reload", "/logging?level=debug", "/try"):
        assert send(admin, "POST", path).status_code == 403


def test_no_page_of_the_admin_has_a_secret(keyed_http: str, admin: str) -> None:
    credential = {"x_admin_key": SECRET, "authorization": f"Bearer {SECRET}"}
    assert send(keyed_http, *READING["inference"], **credential).status_code == 200
    for path in ("/plain", "/metrics", "/models", "/view", "/config", "/history", "/events"):
        with requests.get(admin + path, stream=True, timeout=10) as answer:
            assert (answer.status_code, SECRET in next(answer.iter_content(1 << 20)).decode()) == (200, False)


def test_a_listener_with_tls_answers_no_plain_request(tmp_path: Path) -> None:
    issued = Authority(tmp_path / "authority").issue("localhost")
    files = {"cert": issued.cert, "key": issued.key}
    config = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http", "tls": files}],
        "models": CONFIG["models"],
    }
    daemon = Daemon.start(tmp_path, config)
    try:
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{daemon.addresses[0]}/v2/health/live", timeout=30)
        assert (
            requests.get(
                f"https://{daemon.addresses[0].replace('127.0.0.1', 'localhost')}/v2/health/live",
                verify=str(tmp_path / "authority" / "ca.pem"),
                timeout=30,
            ).status_code
            == 200
        )
    finally:
        daemon.kill()


def test_a_listener_of_any_transport_takes_plain_connections_too(tmp_path: Path) -> None:
    """With TLS, so that clients can move one by one; not if it requires certificates."""
    authority = Authority(tmp_path / "authority")
    issued = authority.issue("localhost")
    files = {"cert": issued.cert, "key": issued.key}
    required = {**files, "client_ca": authority.ca, "client": "require"}
    listeners = [{"listen": "127.0.0.1:0", "transport": "any", "tls": each} for each in (files, required)]
    daemon = Daemon.start(tmp_path, {"listeners": listeners, "models": CONFIG["models"]})
    try:
        mixed, strict = daemon.addresses
        assert requests.get(f"http://{mixed}/v2/health/live", timeout=30).status_code == 200
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{strict}/v2/health/live", timeout=30)
    finally:
        daemon.kill()


def rows() -> list[list[str]]:
    """The cells of the table of threats."""
    section = PAGE.read_text().partition("\n## Threats\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_threat_has_a_test() -> None:
    tests: dict[str, Callable[..., object]] = {
        name: each for name, each in globals().items() if name.startswith("test_") and callable(each)
    }
    own = {test_every_threat_has_a_test.__name__}
    named = [re.findall(r"`(test_\w+)`", cells[-1]) for cells in rows()]
    assert all(named), "each row names a test"
    files = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in {name for names in named for name in names} - set(tests):
        assert f"def {name}(" in files, name
    assert set(tests) - own <= {name for names in named for name in names}
    assert set(PRIVILEGES) == PRIVILEGED
    assert set(READING) | set(PRIVILEGES) == set(CLASSES)
