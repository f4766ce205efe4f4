"""Messages of the contract out of JSON.

The other direction is ``schemas.message_json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from interlingua.schemas import malformed


def read_message(
    document: Mapping[str, Any], message_type: type[Message], *, strict: bool = False
) -> Message:
    """The message that JSON ``document`` describes; members that it does not have are left out, or refused
    by one that is ``strict``. Raises MALFORMED."""
    try:
        return json_format.ParseDict(dict(document), message_type(), ignore_unknown_fields=not strict)
    # infinity for an enumeration and half a surrogate pair for a message come out as the latter two
    except (json_format.ParseError, ValueError, OverflowError, SystemError) as error:
        # of a member that is not known it lists all that are
        why = str(error).partition(" Available Fields")[0]
        raise malformed(f"this is no {message_type.DESCRIPTOR.name}: {why}") from error
