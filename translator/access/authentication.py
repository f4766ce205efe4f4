"""The identity of a client: the name of its token, of its JSON Web Token, or in its certificate.

A credential in the request precedes the certificate of the connection, which may be that of a proxy.
"""

from __future__ import annotations

from hashlib import sha256
from math import inf
from time import monotonic, time

from interlingua.protocols import watched_files
from interlingua.protocols.watched_files import WatchedFiles
from interlingua.schemas import Context
from interlingua.translator.access.tokens import Tokens, name_of
from interlingua.translator.access.web_tokens import WebTokens, invalid

API_KEY_HEADER = "x-api-key"

_MAX_CACHED = 4096
"""How many verified credentials are remembered, the latest ones."""

_SCHEME = "bearer "


_Verified = tuple[str, float]
"""A name, and until when it is valid, in seconds since the epoch."""


class Authenticator:
    """Verifies bearer tokens (RFC 6750), and keys in the header ``api_key_header``, a name in lower case:
    those in ``tokens``, and ``web_tokens``. Use in one thread."""

    def __init__(
        self,
        tokens: WatchedFiles[Tokens] | None = None,
        web_tokens: WebTokens | None = None,
        api_key_header: str = API_KEY_HEADER,
    ) -> None:
        self._tokens = tokens
        self._web_tokens = web_tokens
        self._header = api_key_header
        self._verified: dict[bytes, _Verified] = {}
        self._sources: tuple[object, object] = (None, None)
        self._look_at = 0.0

    def identify(self, context: Context) -> None:
        """Set ``context.identity`` if the request has a credential. Raises UNAUTHENTICATED for one that is
        not valid: the client shall notice."""
        headers = context.headers
        credential = headers.get("authorization")
        if credential is not None and credential[: len(_SCHEME)].lower() == _SCHEME:
            credential = credential[len(_SCHEME) :].strip(" ")
        else:
            credential = headers.get(self._header)
            if credential is None:
                return
        if monotonic() >= self._look_at:
            self._look()
        # bytes that are no text are in headers as surrogates
        digest = sha256(credential.encode(errors="surrogateescape")).digest()
        found = self._verified.get(digest)
        if found is None or found[1] <= time():
            context.identity = None
            found = self._remember(digest, credential)
        context.identity = found[0]

    def _look(self) -> None:
        """Forget what was verified, if a file has changed."""
        self._look_at = monotonic() + watched_files.CHECK_SECS
        tokens, web_tokens = self._tokens, self._web_tokens
        sources = tokens and tokens.current(), web_tokens and web_tokens.keys()
        if any(new is not old for new, old in zip(sources, self._sources, strict=True)):
            self._verified.clear()
        self._sources = sources

    def _remember(self, digest: bytes, credential: str) -> _Verified:
        self._verified.pop(digest, None)
        found = self._verified[digest] = self._verify(digest, credential)
        if len(self._verified) > _MAX_CACHED:
            del self._verified[next(iter(self._verified))]
        return found

    def _verify(self, digest: bytes, credential: str) -> _Verified:
        if self._tokens is not None:
            name = name_of(self._tokens.current(), digest)
            if name is not None:
                return name, inf
        # three parts in base64url (RFC 7515, section 3.1)
        if self._web_tokens is not None and credential.count(".") == 2:
            return self._web_tokens.verify(credential)
        raise invalid("it is unknown")
