"""The options of Cross-Origin Resource Sharing."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from interlingua.protocols.section import Section, Text
from interlingua.translator.access.grants import header_name
from interlingua.translator.serving.cors import ANY_ORIGIN, CorsPolicy

_ORIGIN = re.compile(r"[a-z][a-z0-9+.\-]*://[^/?#\s@]+")


def _origin(text: str) -> str:
    if text != ANY_ORIGIN and not _ORIGIN.fullmatch(text.lower()):
        raise ValueError(f"'{text}' is no origin, such as https://app.example.org, nor '*'")
    return text.lower()


class CorsOptions(Section):
    """Cross-Origin Resource Sharing: what pages of other origins may do, in browsers."""

    allow_origins: Annotated[tuple[Annotated[Text, AfterValidator(_origin)], ...], Field(min_length=1)]
    """The origins of the pages, such as `https://app.example.org`, which may request everything that `allow`
    permits; `"*"` is any, for all but privileged operations."""
    allow_headers: tuple[Annotated[Text, AfterValidator(header_name)], ...] = ()
    """The headers that pages may send. The default is all."""
    allow_credentials: bool = False
    """Whether browsers present their certificates for these pages. Not with `"*"`."""
    max_age_secs: Annotated[int, Field(ge=0)] = 600
    """How long browsers remember this."""

    @model_validator(mode="after")
    def _not_for_any(self) -> CorsOptions:
        if self.allow_credentials and ANY_ORIGIN in self.allow_origins:
            raise ValueError("allow_credentials is for listed origins, not for '*'")
        return self

    def build(self) -> CorsPolicy:
        """What the handlers take."""
        origins = frozenset(self.allow_origins)
        return CorsPolicy(origins, self.allow_headers, self.allow_credentials, self.max_age_secs)
