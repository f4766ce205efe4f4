"""Parameters of requests and responses as a worker sends them: a JSON object of plain values."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from interlingua.schemas.messages import Parameter

_PLAIN = bool | int | float | str


def read_parameters(text: str) -> Mapping[str, Parameter]:
    """The parameters in ``text``. Raises ``ValueError``."""
    if text == "{}":
        return {}
    try:
        parameters = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"parameters that are not JSON: {error}") from error
    if not isinstance(parameters, dict) or not all(isinstance(v, _PLAIN) for v in parameters.values()):
        raise ValueError("parameters that are not plain values by name")
    return parameters
