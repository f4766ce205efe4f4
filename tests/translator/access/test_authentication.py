"""Credentials of clients: tokens of a file, and JSON Web Tokens."""

from __future__ import annotations

import base64
import hmac
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from interlingua.protocols import watched_files
from interlingua.protocols.watched_files import WatchedFiles
from interlingua.schemas import Context, ErrorCode, InferenceError
from interlingua.translator.access import authentication
from interlingua.translator.access.authentication import Authenticator
from interlingua.translator.access.tokens import read_tokens
from interlingua.translator.access.web_tokens import LEEWAY_SECS, WebTokens, read_keys
from interlingua.translator.config import ConfigError, parse
from tests.translator.access.credentials import AUDIENCE, ISSUER, Issuer, token_lines


def bearer(token: str, scheme: str = "Bearer") -> Mapping[str, str]:
    return {"authorization": f"{scheme} {token}"}


def identity(
    authenticator: Authenticator, headers: Mapping[str, str], certificate: str | None = None
) -> str | None:
    context = Context(headers=headers, identity=certificate)
    authenticator.identify(context)
    return context.identity


def refusal(authenticator: Authenticator, headers: Mapping[str, str]) -> str:
    context = Context(headers=headers, identity="of the certificate")
    with pytest.raises(InferenceError) as refused:
        authenticator.identify(context)
    assert (refused.value.code, context.identity) == (ErrorCode.UNAUTHENTICATED, None)
    return refused.value.message


def of_tokens(path: Path) -> Authenticator:
    return Authenticator(WatchedFiles([str(path)], lambda: read_tokens(str(path)), "tokens"))


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


@pytest.fixture
def web(issuer: Issuer) -> Authenticator:
    return Authenticator(None, WebTokens(ISSUER, AUDIENCE, issuer.jwks))


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# two of ann\n\n{token_lines(ann='one', bob='two')}{token_lines(ann='three')}")
    tokens = of_tokens(file)
    for headers, name in (
        ({}, None),
        ({"authorization": "Basic b25l"}, None),
        (bearer("one"), "ann"),
        (bearer("one", "bEARER"), "ann"),
        ({"x-api-key": "two"}, "bob"),
        ({**bearer("three"), "x-api-key": "guess"}, "ann"),
    ):
        for _ in range(2):  # verified, and remembered
            assert identity(tokens, headers) == name
    assert identity(tokens, {}, "of the certificate") == "of the certificate"
    assert identity(tokens, bearer("one"), "of the certificate") == "ann"
    for headers in (bearer("guess"), bearer(""), bearer("a.b.c"), {"x-api-key": ""}, bearer("\udcff")):
        assert refusal(tokens, headers) == "the token is not accepted: it is unknown"


def test_a_key_in_another_header(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(token_lines(ann="one"))
    path = str(tmp_path / "tokens")
    tokens = Authenticator(WatchedFiles([path], lambda: read_tokens(path), "tokens"), None, "x-other")
    assert identity(tokens, {"x-other": "one", "x-api-key": "ignored"}) == "ann"


def test_a_revoked_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watched_files, "CHECK_SECS", 0.0)
    caplog.set_level(logging.INFO)
    file = tmp_path / "tokens"
    file.write_text(token_lines(ann="one", bob="two"))
    tokens = of_tokens(file)
    assert identity(tokens, bearer("one")) == "ann"
    file.write_text("ann: one\n")
    assert identity(tokens, bearer("one")) == "ann", "an unreadable file changes nothing"
    assert identity(tokens, bearer("two")) == "bob"
    (tmp_path / "new").write_text(token_lines(bob="two", eve="four"))
    os.replace(tmp_path / "new", file)
    assert refusal(tokens, bearer("one"))
    assert (identity(tokens, bearer("two")), identity(tokens, bearer("four"))) == ("bob", "eve")
    assert [record.getMessage() for record in caplog.records] == ["tokens not reloaded", "tokens reloaded"]
    assert "one" not in str([record.facts for record in caplog.records])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "line", ["ann", "ann: one", "ann: sha256:12", f"ann: md5:{'0' * 64}", f"*: sha256:{'0' * 64}"]
)
def test_files_of_tokens_that_are_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{token_lines(bob='two')}{line}\n")
    with pytest.raises(ValueError, match=r"tokens:2: not of the form NAME: sha256:HEX$"):
        read_tokens(str(file))


def test_a_token_of_two_names(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(token_lines(ann="one") + token_lines(bob="one"))
    with pytest.raises(ValueError, match="tokens:2: another name has the same token"):
        read_tokens(str(file))


def test_remembered_credentials_are_bounded(
    web: Authenticator, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_MAX_CACHED", 3)
    tokens = {name: issuer.issue(name) for name in "abcdef"}
    for name, token in tokens.items():
        assert identity(web, bearer(token)) == name
    assert len(web._verified) == 3
    assert all(identity(web, bearer(token)) == name for name, token in tokens.items())


def test_web_tokens(web: Authenticator, issuer: Issuer) -> None:
    token = issuer.issue()
    assert identity(web, bearer(token)) == identity(web, {"x-api-key": token}) == "ann"
    assert identity(web, bearer(issuer.issue(aud=["others", AUDIENCE]))) == "ann"
    for refused, reason in (
        (issuer.issue(expires_in=-120), "it has expired"),
        (issuer.issue(nbf=int(time.time()) + 120), "it is not valid yet"),
        (issuer.issue(aud="others"), "it is for another audience"),
        (issuer.issue(iss="https://other.example"), "it is of another issuer"),
        (issuer.issue(exp=None), "it lacks a claim: exp, iss, aud and sub are required"),
        (issuer.issue(aud=None), "it lacks a claim: exp, iss, aud and sub are required"),
        (issuer.issue(None), "it lacks a claim: exp, iss, aud and sub are required"),
        (issuer.issue("a\nb"), "its subject is no name"),
        (issuer.issue(""), "its subject is no name"),
        (f"{token[:-8]}AAAAAAAA", "its signature is not valid"),
        ("a.b.c", "it is malformed"),
        ("no", "it is unknown"),
    ):
        assert refusal(web, bearer(refused)) == f"the token is not accepted: {reason}"


def test_a_remembered_web_token_is_verified_until_it_expires(
    web: Authenticator, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[float] = []
    verify = WebTokens.verify

    def counted(self: WebTokens, token: str) -> tuple[str, float]:
        found = verify(self, token)
        verified.append(found[1])
        return found

    monkeypatch.setattr(WebTokens, "verify", counted)
    token = issuer.issue(expires_in=30)
    for _ in range(3):
        assert identity(web, bearer(token)) == "ann"
    (until,) = verified
    assert 0 < until - time.time() <= 30 + LEEWAY_SECS
    monkeypatch.setattr(authentication, "time", lambda: until)
    assert identity(web, bearer(token)) == "ann"
    assert len(verified) == 2


def unsigned(claims: Mapping[str, Any], header: Mapping[str, Any], secret: bytes | None = None) -> str:
    """A token that was not made by the library: without a signature, or with an HMAC."""
    parts = [base64.urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=") for part in (header, claims)]
    signature = b"" if secret is None else hmac.digest(secret, b".".join(parts), "sha256")
    return b".".join((*parts, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


def test_algorithms_are_those_of_the_key(web: Authenticator, issuer: Issuer) -> None:
    claims = jwt.decode(issuer.issue(), options={"verify_signature": False})
    public = issuer.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for algorithm, secret in (("none", None), ("None", None), ("HS256", public), ("ES384", None)):
        forged = unsigned(claims, {"alg": algorithm, "typ": "JWT", "kid": "1"}, secret)
        text = "the token is not accepted: its algorithm is not that of the key"
        assert refusal(web, bearer(forged)) == text


def test_keys_that_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_files, "CHECK_SECS", 0.0)
    old = Issuer(tmp_path)
    web = Authenticator(None, WebTokens(ISSUER, AUDIENCE, old.jwks))
    first = old.issue()
    assert identity(web, bearer(first)) == "ann"
    new = Issuer(tmp_path, kid="2")
    new.publish(old.public)
    assert (identity(web, bearer(first)), identity(web, bearer(new.issue("bob")))) == ("ann", "bob")
    new.publish()
    assert refusal(web, bearer(first)) == "the token is not accepted: no key verifies it"
    assert identity(web, bearer(new.issue("bob"))) == "bob"


def test_keys_without_an_id(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    issuer, other = Issuer(tmp_path, kid=None), Issuer(tmp_path / "other", kid=None)
    issuer.publish(other.public)
    web = Authenticator(None, WebTokens(ISSUER, AUDIENCE, issuer.jwks))
    assert identity(web, bearer(issuer.issue())) == "ann"


def test_files_of_keys(tmp_path: Path, issuer: Issuer) -> None:
    private = rsa.generate_private_key(65537, 2048)
    public = RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    path = tmp_path / "keys"
    path.write_bytes(orjson.dumps({"keys": [public, {**public, "alg": "PS256"}, {**public, "use": "enc"}]}))
    assert [key.algorithms[-1] for key in read_keys(str(path))] == ["PS512", "PS256"]
    assert len(read_keys(issuer.jwks)) == 1
    for content, reason in (
        (b"{", "not JSON"),
        (b"[]", "not a JWK Set"),
        (b'{"keys": [1]}', "not a JWK Set"),
        (b'{"keys": []}', "has no key for signatures"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', r"keys\[0\]: is a secret"),
        (orjson.dumps({"keys": [RSAAlgorithm.to_jwk(private, as_dict=True)]}), r"keys\[0\]: is a secret"),
        (b'{"keys": [{"kty": "XYZ"}]}', r"keys\[0\]: unknown kty, crv or alg"),
        (orjson.dumps({"keys": [{**public, "alg": "HS256"}]}), r"keys\[0\]: unknown kty, crv or alg"),
        (b'{"keys": [{"kty": "RSA", "n": "1", "e": "1"}]}', r"keys\[0\]: is not a valid key"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=reason) as refused:
            read_keys(str(path))
        assert "c2VjcmV0" not in str(refused.value)


def test_mistakes_are_errors_of_the_file(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = "listeners: [{listen: ':0', transport: http}]\n"
    jwt_options = f"jwt: {{issuer: {ISSUER}, audience: {AUDIENCE}, jwks: {issuer.jwks}}}"
    assert parse(f"{listeners}auth: {{{jwt_options}}}").auth is not None
    cases = [
        ("{tokens: none.txt}", "auth.tokens: none.txt: No such file or directory"),
        (f"{{tokens: {issuer.jwks}}}", "jwks.json:1: not of the form NAME: sha256:HEX"),
        (
            "{jwt: {issuer: a, audience: b, jwks: none.json}}",
            "auth.jwt: none.json: No such file or directory",
        ),
        ("{jwt: {issuer: a}}", "auth.jwt.audience: is missing"),
        ("{api_key_header: 'a b'}", "auth.api_key_header: 'a b' cannot be the name of a header with text"),
        ("{limits: {ann: {max_requests: 0}}}", "auth.limits.ann.max_requests: must be at least 1"),
        ("{limits: {ann: {requests_per_sec: 0}}}", "auth.limits.ann.requests_per_sec: must be above 0"),
    ]
    for auth, text in cases:
        with pytest.raises(ConfigError) as refused:
            parse(f"{listeners}auth: {auth}")
        assert text in str(refused.value), str(refused.value)
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigError, match=r"auth\.jwt: needs PyJWT: pip install 'interlingua\[jwt\]'"):
        parse(f"{listeners}auth: {{{jwt_options}}}")
