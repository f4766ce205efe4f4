"""``Accept`` headers, for paths with an answer for people and one for programs."""

from __future__ import annotations

HTML = "text/html"
JSON = "application/json"


def wants_html(accept: str) -> bool:
    """Whether a client names HTML and does not prefer JSON, as browsers do, unlike tools with ``*/*``."""
    weights = {HTML: 0.0, JSON: 0.0}
    for entry in accept.lower().split(","):
        media, *parameters = [part.strip() for part in entry.split(";")]
        for known in weights:
            if media in (known, f"{known.partition('/')[0]}/*"):
                weights[known] = max(weights[known], _weight(parameters))
    return 0 < weights[HTML] >= weights[JSON]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
