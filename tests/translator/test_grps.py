"""What a configuration makes of grps: which quirks, which paths, and what it shares a listener with."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from interlingua.protocols.transport.address import Address
from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.runtime.repository.files import Loaded
from interlingua.schemas import ListenerAddress
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config import parse

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
HTTP = {"listen": "127.0.0.1:0", "transport": "http"}


def assembled(listener: dict[str, Any] | None = None, **document: Any) -> Assembly:
    config = {"listeners": [{**HTTP, **(listener or {})}], **document}
    return assemble(parse(yaml.safe_dump(config), "c.yaml"), Loaded())


def ask(assembly: Assembly, path: str, method: str = "GET", accept: str = "") -> HttpAnswer:
    http = assembly.pipeline(assembly.config.listeners[0]).handlers["http"]
    request = HttpRequest(method, path, headers={"accept": accept} if accept else {})
    return http.head(request) or asyncio.run(http.serve(request))


@pytest.mark.parametrize(("flavor", "status"), [("py", 503), ("cpp", 200)])
def test_a_listener_follows_its_flavor(flavor: str, status: int) -> None:
    answer = ask(assembled({"flavors": {"grps": flavor}}), "/grps/v1/health/ready")
    assert answer.status == status
    assert json.loads(b"".join(parts_of(answer)))["status"]["code"] == 503


@pytest.mark.parametrize(
    ("dialects", "accept", "content_type"),
    [
        (["oip", "graphpipe", "trtis", "grps"], BROWSER, "text/html"),
        (["grps", "graphpipe"], BROWSER, "text/html"),
        (["grps", "graphpipe"], "text/html", "text/html"),
        (["grps", "graphpipe"], "", "application/json"),
        (["oip", "graphpipe", "trtis", "grps"], "*/*", "application/json"),
        (["graphpipe", "grps"], "application/json, text/plain, */*", "application/json"),
        (["grps", "oip"], "", "text/html"),
        (["graphpipe", "oip"], BROWSER, "application/json"),
    ],
)
def test_the_root_is_a_page_for_browsers_and_metadata_for_others(
    dialects: list[str], accept: str, content_type: str
) -> None:
    spec = {"datatype": "FP32", "shape": [-1]}
    signature = {"inputs": [{"name": "x", **spec}], "outputs": [{"name": "y", **spec}]}
    document = {
        "listeners": [{**HTTP, "dialects": dialects, "default_model": "m"}],
        "models": {"m": {"backend": "identity", "signature": signature}},
    }
    config = parse(yaml.safe_dump(document), "c.yaml")
    assembly = assemble(config, load_local(config))
    answer = ask(assembly, "/", accept=accept)
    told = {name.lower(): value for name, value in answer.headers}["content-type"]
    assert (answer.status, told) == (200, content_type)
    if content_type == "application/json":
        described = json.loads(b"".join(parts_of(answer)))
        assert (described["Name"], described["Server"]) == ("m", "interlingua")
    # a message of GraphPipe's, cut short
    assert ask(assembly, "/", "POST").status == (400 if "graphpipe" in dialects else 405)


def test_predict_of_ones_own() -> None:
    options = {"customized_predict_http": {"path": "/v1/chat/completions", "customized_body": True}}
    assembly = assembled(grps=options)
    answer = ask(assembly, "/v1/chat/completions", "POST")
    assert (answer.status, dict(answer.headers)) == (500, {"Content-Type": "text/plain"})
    assert ask(assembled(), "/v1/chat/completions", "POST").status == 404


def test_where_it_listens_and_whether_it_is_online() -> None:
    assembly = assembled(server={"start_offline": True})
    assert not assembly.service.is_online()
    assert assembled().service.is_online()
    assembly.is_bound([(assembly.config.listeners[0], Address("127.0.0.1", 4711))])
    (told,) = assembly.service.listeners
    assert told == ListenerAddress("http", "127.0.0.1:4711", assembly.config.listeners[0].dialects)
