"""The options of authentication: tokens, JSON Web Tokens, and the limits of each client."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from interlingua.protocols.section import Section, Text
from interlingua.protocols.watched_files import reason_of
from interlingua.translator.access.authentication import API_KEY_HEADER
from interlingua.translator.access.grants import header_name
from interlingua.translator.access.tokens import read_tokens
from interlingua.translator.access.web_tokens import read_keys, require_library


class JwtOptions(Section):
    """JSON Web Tokens of one issuer. They need an expiry (`exp`), a subject (`sub`), which is the identity of
    the client, and these values of `iss` and `aud`. Needs the extra `jwt`."""

    issuer: Text
    """The issuer (`iss`)."""
    audience: Text
    """The audience (`aud`), or one of several."""
    jwks: Text
    """The file with the public keys, a JWK Set. Only the algorithms of a key's own type, or its `alg`, are
    accepted."""

    @model_validator(mode="after")
    def _usable(self) -> JwtOptions:
        require_library()
        try:
            read_keys(self.jwks)
        except OSError as error:
            raise ValueError(reason_of(error)) from error
        return self


class ClientLimitOptions(Section):
    """The limits of one client, over all listeners and connections. Further inferences are refused as
    overload; other requests do not count."""

    max_requests: Annotated[int, Field(ge=1)] | None = None
    """The maximum number of requests in flight. The default is no limit."""
    requests_per_sec: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The maximum number of requests per second; those of one second may come at once. The default is no
    limit."""


class AuthOptions(Section):
    """The credentials of clients. A listener restricts what clients may do by `user:NAME` in its `allow`; it
    refuses credentials that are not valid. Changed files are used within two seconds."""

    tokens: Text | None = None
    """The file of tokens: `NAME: sha256:HEX` in each line, the SHA-256 of a token in hexadecimal. `#` begins
    a comment. Clients send the token as `Authorization: Bearer TOKEN`, or in `api_key_header`."""
    jwt: JwtOptions | None = None
    """JSON Web Tokens, sent in the same headers."""
    api_key_header: Text = API_KEY_HEADER
    """The header, the metadata of gRPC, or the user field of bRPC with the token, as an alternative to
    `Authorization`."""
    limits: dict[Text, ClientLimitOptions] = Field(default={})
    """The limits of clients by name, with `"*"` for each that is not listed."""

    @field_validator("tokens")
    @classmethod
    def _readable(cls, path: str | None) -> str | None:
        if path is not None:
            try:
                read_tokens(path)
            except OSError as error:
                raise ValueError(reason_of(error)) from error
        return path

    @field_validator("api_key_header")
    @classmethod
    def _header(cls, name: str) -> str:
        return header_name(name)
