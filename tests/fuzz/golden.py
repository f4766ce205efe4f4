"""The recorded messages of ``tests/golden`` as bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden"


def messages(folder: str, pattern: str) -> list[bytes]:
    """The recorded files of ``folder`` whose names match ``pattern``."""
    return [path.read_bytes() for path in sorted((GOLDEN / folder).glob(pattern))]


def entries(path: str) -> list[dict[str, Any]]:
    """The recorded exchanges in the file ``path`` of JSON."""
    found: list[dict[str, Any]] = json.loads((GOLDEN / path).read_text())
    return found


def trtis_messages() -> list[tuple[bytes, bytes]]:
    """The recorded HTTP messages of version 1: each a request and its reply, as they travelled."""
    return [
        (base64.b64decode(each["request_b64"]), base64.b64decode(each["response_b64"]))
        for each in entries("trtis/http_exchanges.json")
    ]
