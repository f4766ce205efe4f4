"""The configuration that runs, without secrets, and how the file differs from it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.loader import load
from interlingua.translator.config.options import Config
from interlingua.translator.logs.redaction import REDACTED, redacted

_SECRET = re.compile(
    "passw(or)?d|secret|token(?!i[sz])|credential|api_?key|private_?key|authorization|cookie", re.IGNORECASE
)
"""Names of options, parameters and environment variables with a secret. A tokenizer is none."""

_MIN_SECRET = 4
"""The least characters of an environment variable that is looked for: a short text is anywhere."""


async def report(path: str, config: Config) -> dict[str, Any]:
    """``loaded``: what ``config`` states beyond the defaults. ``differences``: the options for which the file
    at ``path`` has another value now, each with both. ``errors``: why it cannot be loaded."""
    return await asyncio.to_thread(_report, path, config)


def _report(path: str, config: Config) -> dict[str, Any]:
    found: dict[str, Any] = {
        "file": path,
        "loaded": without_secrets(config.model_dump(mode="json", exclude_defaults=True)),
        "differences": [],
        "errors": [],
    }
    try:
        file = load(path)
    except ConfigError as error:
        found["errors"] = without_secrets(error.lines)
        return found
    before, after = (dict(_leaves(each.model_dump(mode="json"))) for each in (config, file))
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            values = {"loaded": before.get(name), "file": after.get(name)}
            shown = {
                side: REDACTED if _is_secret(name, value) else without_secrets(value)
                for side, value in values.items()
            }
            found["differences"].append({"option": name, **shown})
    return found


def without_secrets(value: Any, environment: Mapping[str, str] = os.environ) -> Any:
    """``value`` with the values of options, parameters and environment variables that are named like a
    secret, and with the credentials in other texts, redacted."""
    secrets = [
        text for name, text in environment.items() if len(text) >= _MIN_SECRET and _SECRET.search(name)
    ]
    return _redacted(value, sorted(secrets, key=len, reverse=True))


def _redacted(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: REDACTED if _is_secret(str(key), each) else _redacted(each, secrets)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(each, secrets) for each in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
        return redacted(value)
    return value


def _is_secret(name: str, value: Any) -> bool:
    return isinstance(value, str | Mapping | list) and _SECRET.search(name) is not None


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping and no list, by its path, as ``models.a.path``."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from _leaves(each, f"{at}[{number}]")
    else:
        yield at, value
