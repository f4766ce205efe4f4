"""JSON Web Tokens (RFC 7519) of one issuer, verified with the public keys in a file (JWK Set, RFC 7517).

A key verifies the algorithms of its own type alone (RFC 8725, section 3.1): never ``none``, and no HMAC with
a public key as the secret. The library is PyJWT, of the extra ``jwt``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from interlingua.protocols.watched_files import WatchedFiles
from interlingua.schemas import ErrorCode, InferenceError

LEEWAY_SECS = 60.0
"""How far the clock of the issuer may be from ours: Envoy's default."""

MAX_NAME = 256
"""The longest subject, in characters: it is in logs and metrics."""

_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
"""The algorithms of a key without ``alg``, by its type, or by its curve."""

_REASONS = {
    "ExpiredSignatureError": "it has expired",
    "ImmatureSignatureError": "it is not valid yet",
    "InvalidAudienceError": "it is for another audience",
    "InvalidIssuerError": "it is of another issuer",
    "InvalidSignatureError": "its signature is not valid",
    "InvalidAlgorithmError": "its algorithm is not that of the key",
    "MissingRequiredClaimError": "it lacks a claim: exp, iss, aud and sub are required",
}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, with the algorithms that it verifies; ``id`` is its ``kid``."""

    id: str | None
    algorithms: Sequence[str]
    key: Any


class WebTokens:
    """The tokens of ``issuer`` for ``audience``. Raises ``OSError`` and ``ValueError`` for an unusable file
    of keys, ``jwks``, and ``ValueError`` without PyJWT."""

    def __init__(self, issuer: str, audience: str, jwks: str) -> None:
        require_library()
        self._issuer = issuer
        self._audience = audience
        self._keys = WatchedFiles([jwks], lambda: read_keys(jwks), "JWKS")

    def keys(self) -> Sequence[VerificationKey]:
        """The keys as they are now."""
        return self._keys.current()

    def verify(self, token: str) -> tuple[str, float]:
        """The subject of ``token``, and until when it is valid, in seconds since the epoch. Raises
        UNAUTHENTICATED."""
        import jwt

        reason = "no key verifies it"
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise invalid("it is malformed") from None
        for each in self.keys():
            if "kid" in header and each.id != header["kid"]:
                continue
            try:
                claims = jwt.decode(
                    token,
                    each.key,
                    algorithms=list(each.algorithms),
                    issuer=self._issuer,
                    audience=self._audience,
                    leeway=LEEWAY_SECS,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                )
            except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError) as error:
                reason = _REASONS.get(type(error).__name__, reason)  # another key may verify it
            except jwt.PyJWTError as error:
                raise invalid(_REASONS.get(type(error).__name__, "it is malformed")) from None
            else:
                return _name(claims["sub"]), float(claims["exp"]) + LEEWAY_SECS
        raise invalid(reason)


def invalid(reason: str) -> InferenceError:
    """The refusal of a credential."""
    return InferenceError(ErrorCode.UNAUTHENTICATED, f"the token is not accepted: {reason}")


def require_library() -> None:
    """Raises ``ValueError`` without PyJWT or the library that it needs for public keys."""
    try:
        import jwt.algorithms
    except ImportError:
        found = False
    else:
        found = jwt.algorithms.has_crypto
    if not found:
        raise ValueError("needs PyJWT: pip install 'interlingua[jwt]'")


def read_keys(path: str) -> Sequence[VerificationKey]:
    """The keys in the file at ``path``. Raises ``OSError`` and ``ValueError``."""
    try:
        document = orjson.loads(Path(path).read_bytes())
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
        raise ValueError(f"{path}: not a JWK Set, whose member keys is a list of keys")
    found = [key for number, each in enumerate(keys) for key in _read_key(f"{path}: keys[{number}]", each)]
    if not found:
        raise ValueError(f"{path}: has no key for signatures")
    return found


def _read_key(place: str, stated: dict[str, Any]) -> Iterator[VerificationKey]:
    """The key, if it is for signatures. Raises ``ValueError`` without a word of the key."""
    import jwt

    if stated.get("use", "sig") != "sig":
        return
    if stated.get("kty") == "oct" or "d" in stated:
        raise ValueError(f"{place}: is a secret; only public keys belong into the file")
    known = _ALGORITHMS.get(str(stated.get("crv") or stated.get("kty")))
    if known is None or stated.get("alg", known[0]) not in known:
        raise ValueError(f"{place}: unknown kty, crv or alg")
    try:
        key = jwt.PyJWK(stated, known[0]).key
    except jwt.PyJWTError:
        raise ValueError(f"{place}: is not a valid key") from None
    yield VerificationKey(stated.get("kid"), (stated["alg"],) if "alg" in stated else known, key)


def _name(subject: Any) -> str:
    if not (isinstance(subject, str) and 0 < len(subject) <= MAX_NAME and subject.isprintable()):
        raise invalid("its subject is no name")
    return subject
