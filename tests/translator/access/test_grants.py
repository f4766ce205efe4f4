from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from interlingua.schemas import Context, ErrorCode, InferenceError, Operation
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.classes import CLASS_OF, CLASSES, PRIVILEGED
from interlingua.translator.access.cross_site import is_cross_site
from interlingua.translator.access.grants import read_grants
from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.loader import parse

LOOPBACK = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5")
REMOTE = ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1", "ipv4:10.1.2.3:5", "", "unix:", "localhost")


def admitted(authorization: Authorization, requested: Any, peer: str, **headers: str) -> bool:
    """Whether a caller at ``peer`` may request operations of the class."""
    context = Context(peer=peer, headers={name.replace("_", "-"): value for name, value in headers.items()})
    with suppress(InferenceError):
        authorization.admit(requested, context)
        return True
    with pytest.raises(InferenceError, match=f"'{requested}'") as refused:
        authorization.admit(requested, context)
    assert refused.value.code is ErrorCode.FORBIDDEN
    return False


def allowing(listener: str = "0.0.0.0:8000", **allow: list[str]) -> Authorization:
    return Authorization(listener, read_grants(allow))  # type: ignore[arg-type]


def test_every_operation_has_a_class() -> None:
    assert set(CLASS_OF) == set(Operation)
    assert set(CLASS_OF.values()) == set(CLASSES)


@pytest.mark.parametrize("requested", CLASSES)
def test_defaults(requested: str) -> None:
    everybody = requested not in PRIVILEGED
    assert everybody is (requested in ("inference", "metadata", "health", "statistics"))
    assert (requested in allowing().unrestricted) is everybody
    for peer in LOOPBACK:
        assert admitted(allowing(), requested, peer)
    for peer in REMOTE:
        assert admitted(allowing(), requested, peer) is everybody
    for peer in ("", "unix:", "unix:/run/x"):
        assert admitted(allowing("unix:run/x.sock"), requested, peer)


@pytest.mark.parametrize(
    ("callers", "yes", "no"),
    [
        (["anyone"], (*LOOPBACK, *REMOTE), ()),
        ([], (), (*LOOPBACK, *REMOTE)),
        (["10.1.0.0/16"], ("10.1.2.3", "::ffff:10.1.2.3"), ("10.2.0.1", "127.0.0.1", "")),
        (["10.1.2.3", "2001:db8::/32"], ("10.1.2.3", "2001:db8::7%eth0"), ("10.1.2.4", "2001:db9::1")),
        (["local", "192.168.0.0/24"], ("::1", "192.168.0.9"), ("192.168.1.9", "10.1.2.3")),
    ],
)
def test_callers_by_address(callers: list[str], yes: tuple[str, ...], no: tuple[str, ...]) -> None:
    for requested in ("inference", "control"):
        authorization = allowing(**{requested: callers})
        assert all(admitted(authorization, requested, peer) for peer in yes)
        assert not any(admitted(authorization, requested, peer) for peer in no)


def test_callers_with_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    authorization = allowing(control=[f"key:X-Admin={tmp_path / 'key'}"])
    assert admitted(authorization, "control", "10.1.2.3", x_admin="s3cret")
    for value in ("", "s3cre", "s3cret ", "S3cret", "s3cret, s3cret", "\udcff", "é"):
        assert not admitted(authorization, "control", "127.0.0.1", x_admin=value)
    assert not admitted(authorization, "control", "127.0.0.1")
    assert not admitted(authorization, "logging", "10.1.2.3", x_admin="s3cret")
    with pytest.raises(InferenceError) as caught:
        authorization.admit("control", Context(peer="10.1.2.3", headers={"x-admin": "guess"}))
    assert caught.value.message == (
        "This API is restricted, expecting header 'x-admin' (operations of class 'control')"
    )
    assert "s3cret" not in repr(authorization)


@pytest.mark.parametrize(
    ("headers", "cross"),
    [
        ({}, False),
        ({"host": "h:8000"}, False),
        ({"host": "h:8000", "origin": "http://h:8000"}, False),
        ({"host": "H:8000", "origin": "https://h:8000"}, False),
        ({"host": "h:8000", "origin": "http://h"}, True),
        ({"host": "h:8000", "origin": "http://h:8001"}, True),
        ({"host": "h:8000", "origin": "http://evil.example"}, True),
        ({"host": "h:8000", "origin": "null"}, True),
        ({"host": "h:8000", "origin": ""}, True),
        ({"origin": "http://h"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
        ({"host": "", "origin": "file://"}, True),
        ({"host": "h", "origin": "http://h", "sec-fetch-site": "same-origin"}, False),
        ({"host": "h", "sec-fetch-site": "none"}, False),
        ({"host": "h", "user-agent": "curl/8.5.0"}, False),
        ({"host": "h", "user-agent": "Mozilla/5.0 (X11) Firefox/140.0", "sec-fetch-site": "none"}, False),
        ({"host": "h", "user-agent": "Mozilla/5.0 (X11) Firefox/140.0", "origin": "http://h"}, False),
        ({"host": "h", "user-agent": "Mozilla/5.0 (X11) Firefox/140.0"}, True),
        ({"host": "h", "sec-fetch-site": "same-site"}, True),
        ({"host": "h", "sec-fetch-site": "cross-site"}, True),
        ({"host": "h", "sec-fetch-site": "Cross-Site"}, True),
        ({"host": "h", "sec-fetch-site": "none, cross-site"}, True),
        ({"host": "h", "sec-fetch-site": "?"}, True),
    ],
)
def test_cross_site(headers: dict[str, str], cross: bool) -> None:
    assert is_cross_site(headers) is cross
    open_to_all = allowing(**{name: ["anyone"] for name in CLASSES})
    for requested in CLASSES:
        sent = {name.replace("-", "_"): value for name, value in headers.items()}
        assert admitted(open_to_all, requested, "127.0.0.1", **sent) is not (
            cross and requested in PRIVILEGED
        )


@pytest.mark.parametrize("requested", sorted(PRIVILEGED))
def test_domains_that_are_rebound_to_this_machine(requested: str) -> None:
    rebound = {"host": "evil.example:8000", "origin": "http://evil.example:8000"}
    assert not admitted(allowing(), requested, "127.0.0.1", **rebound)
    assert not admitted(allowing("unix:run/x.sock"), requested, "", host="evil.example")
    for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3", "interlingua:8000"):
        assert admitted(allowing(), requested, "127.0.0.1", host=host)
    # a domain may be the name of a server for callers elsewhere
    for callers in (["anyone"], ["local", "127.0.0.0/8"]):
        assert admitted(allowing(**{requested: callers}), requested, "127.0.0.1", **rebound)


@pytest.mark.parametrize(
    ("allow", "said"),
    [
        ("{controll: [local]}", "unknown value 'controll'; did you mean 'control'?"),
        ("{control: local}", "must be a list"),
        (
            "{control: [locl]}",
            "unknown caller 'locl' (allowed: anyone, local, a network such as 10.0.0.0/8, ",
        ),
        (
            "{control: ['user:ann']}",
            "'user:ann' needs the option auth, or tls with client: request or require",
        ),
        ("{control: [10.0.0.1/8]}", "'10.0.0.1/8' is no network in CIDR notation"),
        ("{control: ['::ffff:10.0.0.0/104']}", "write IPv4 addresses as such"),
        ("{control: ['key:x-admin']}", "'key:x-admin' is not of the form key:HEADER=FILE"),
        ("{control: ['key:x y=f']}", "'x y' cannot be the name of a header with text"),
        ("{control: ['key:x-bin=f']}", "'x-bin' cannot be the name of a header with text"),
        ("{control: ['key:x=/no/such']}", "'/no/such' cannot be read: No such file or directory"),
        ("{control: ['key:x=/dev/null']}", "'/dev/null' is empty"),
    ],
)
def test_refused_configurations(allow: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"listeners:\n  - listen: ':0'\n    transport: http\n    allow: {allow}\n")
    (line,) = caught.value.lines
    assert line.startswith("config:4: listeners[0].allow")
    assert said in line
