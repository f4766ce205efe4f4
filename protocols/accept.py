"""``Accept`` headers, for paths with several forms of an answer."""

from __future__ import annotations

HTML = "text/html"
JSON = "application/json"
OPENMETRICS = "application/openmetrics-text"


def wants_html(accept: str) -> bool:
    """Whether a client names HTML and does not prefer JSON, as browsers do, unlike tools with ``*/*``."""
    html, json = _weights(accept, HTML, JSON)
    return 0 < html >= json


def wants_openmetrics(accept: str) -> bool:
    """Whether a client names OpenMetrics, as Prometheus does that stores exemplars."""
    # unlike the text format, it is never the answer to a wildcard
    return any(_weights(entry, OPENMETRICS)[0] for entry in accept.split(",") if "*" not in entry)


def _weights(accept: str, *types: str) -> list[float]:
    """The weight of each of ``types``, 0 for one that is not accepted."""
    weights = dict.fromkeys(types, 0.0)
    for entry in accept.lower().split(","):
        media, *parameters = [part.strip() for part in entry.split(";")]
        for known in weights:
            if media in (known, f"{known.partition('/')[0]}/*"):
                weights[known] = max(weights[known], _weight(parameters))
    return list(weights.values())


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
