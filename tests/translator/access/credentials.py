"""Tokens, and JSON Web Tokens with the keys that sign them, for tests."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "interlingua"


def token_lines(**tokens: str) -> str:
    """The file of ``tokens`` by name."""
    return "".join(f"{name}: sha256:{sha256(token.encode()).hexdigest()}\n" for name, token in tokens.items())


class Issuer:
    """An issuer whose public key is in the file ``jwks``."""

    def __init__(self, folder: Path, kid: str | None = "1") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.kid = kid
        self.jwks = str(folder / "jwks.json")
        self.publish()

    @property
    def public(self) -> dict[str, Any]:
        public: dict[str, Any] = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return public if self.kid is None else {**public, "kid": self.kid}

    def publish(self, *others: dict[str, Any]) -> None:
        """Write the file, with the keys of ``others`` too."""
        Path(self.jwks).write_bytes(orjson.dumps({"keys": [*others, self.public]}))

    def issue(self, subject: Any = "ann", expires_in: float = 60.0, **claims: Any) -> str:
        """A token; a claim of None is missing."""
        stated = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "exp": int(time.time() + expires_in),
            **claims,
        }
        headers = None if self.kid is None else {"kid": self.kid}
        return jwt.encode(
            {name: value for name, value in stated.items() if value is not None}, self.key, "ES256", headers
        )
