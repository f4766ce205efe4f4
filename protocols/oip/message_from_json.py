"""Messages of the contract out of JSON; ``schemas.message_json`` is the other direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from interlingua.schemas import malformed


def read_message(
    document: Mapping[str, Any], message_type: type[Message], *, strict: bool = False
) -> Message:
    """The message in JSON ``document``; unknown members are ignored, or refused if ``strict``. Raises
    MALFORMED."""
    try:
        return json_format.ParseDict(dict(document), message_type(), ignore_unknown_fields=not strict)
    # the latter two for infinity as an enumeration and half a surrogate pair for a message
    except (json_format.ParseError, ValueError, OverflowError, SystemError) as error:
        # for an unknown member it lists all known ones
        why = str(error).partition(" Available Fields")[0]
        raise malformed(f"this is no {message_type.DESCRIPTOR.name}: {why}") from error
