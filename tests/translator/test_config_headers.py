"""What a configuration may say of headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from interlingua.translator.config import ConfigError, parse
from interlingua.translator.config.options import Config


def configured(upstream: dict[str, Any] | None = None, listener: dict[str, Any] | None = None) -> Config:
    told = {"dialect": "oip", "transport": "http", "urls": ["127.0.0.1:1"], **(upstream or {})}
    listening = {"listen": "127.0.0.1:0", "transport": "http", **(listener or {})}
    return parse(yaml.safe_dump({"listeners": [listening], "upstreams": {"there": told}}), "c.yaml")


def refusal(**sections: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(**sections)
    (line,) = caught.value.lines
    return line


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("  Bearer sesame\n")
    return str(path)


def test_names_are_kept_in_lower_case(token: str) -> None:
    options = {"forward_headers": ["X-Tenant", "baggage"], "headers": {"Authorization": {"file": token}}}
    upstream = configured(options).upstreams["there"]
    assert upstream.forward_headers == ("x-tenant", "baggage")
    assert list(upstream.headers) == ["authorization"]


@pytest.mark.parametrize(
    "name",
    [
        *("Connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "Upgrade"),
    ],
)
def test_hop_by_hop_headers_go_no_further(name: str, token: str) -> None:
    said = f"'{name.lower()}' is of one connection and goes no further (RFC 9110, 7.6.1)"
    assert refusal(upstream={"forward_headers": [name]}).endswith(f"forward_headers[0]: {said}")
    assert refusal(upstream={"headers": {name: {"file": token}}}).endswith(said)


@pytest.mark.parametrize("name", ["Content-Length", "host", "grpc-timeout", "accept", "NV-InferRequest"])
def test_headers_of_the_message_are_its_dialects_and_transports(name: str, token: str) -> None:
    said = "is written for each message, as its dialect and transport need it"
    assert refusal(upstream={"forward_headers": [name]}).endswith(said)
    assert refusal(upstream={"headers": {name: {"file": token}}}).endswith(said)


@pytest.mark.parametrize(("name", "said"), [("a b", "cannot be the name"), ("x-bin", "binary metadata")])
def test_names_that_cannot_be_sent(name: str, said: str) -> None:
    assert said in refusal(upstream={"forward_headers": [name]})


@pytest.mark.parametrize("name", ["traceparent", "TraceState", "x-request-id"])
def test_the_trace_is_the_callers(name: str, token: str) -> None:
    assert configured({"forward_headers": [name]}).upstreams["there"].forward_headers == (name.lower(),)
    assert "always goes on as the caller sent it" in refusal(upstream={"headers": {name: {"file": token}}})


def test_a_header_has_one_source(token: str) -> None:
    options = {"forward_headers": ["authorization"], "headers": {"Authorization": {"file": token}}}
    assert "'authorization' is also in forward_headers" in refusal(upstream=options)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"Bearer a\r\nx-admin: yes", "has a character that no header can hold"),
        (b"Bearer \x00", "has a character that no header can hold"),
        ("Bearer é".encode(), "has a character that no header can hold"),
        (b"x" * 8193, "has more than 8192 bytes"),
    ],
)
def test_a_file_without_a_header_value(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    line = refusal(upstream={"headers": {"authorization": {"file": str(path)}}})
    assert line.startswith("c.yaml:") and "upstreams.there.headers.authorization.file: " in line
    assert said in line and "Bearer" not in line


def test_a_value_is_in_no_configuration_report(token: str) -> None:
    config = configured({"headers": {"authorization": {"file": token}}})
    assert "sesame" not in repr(config) and "sesame" not in config.model_dump_json()


@pytest.mark.parametrize("option", ["forward_headers", "headers"])
def test_messages_over_tcp_have_no_headers(option: str, token: str) -> None:
    value = {"forward_headers": ["x-a"], "headers": {"x-a": {"file": token}}}[option]
    tcp = {"dialect": "graphpipe", "transport": "tcp", option: value}
    assert refusal(upstream=tcp).endswith(
        f"{option}: is for transport http, grpc or brpc: messages over tcp have no headers"
    )


def test_which_listeners_make_headers_parameters() -> None:
    config = configured(listener={"headers_as_parameters": "(?-i)X-.*"})
    assert config.listeners[0].headers_as_parameters == "(?-i)X-.*"
    brpc = {"transport": "brpc", "headers_as_parameters": ".*"}
    assert refusal(listener=brpc).endswith("headers_as_parameters: is for transport http or grpc, not brpc")
    line = refusal(listener={"headers_as_parameters": "x-(.*"})
    assert "headers_as_parameters: is not a regular expression: missing )" in line
