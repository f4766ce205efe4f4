"""The JSON Schema of the configuration file, for editors: options, types, defaults and meanings.

Rules over several options are not in it, nor is what an included file has to add: ``interlingua check``
knows them.
"""

from __future__ import annotations

from typing import Any

from interlingua.protocols.registry import DIALECTS
from interlingua.translator.config.schema import schema
from interlingua.translator.config.sections import meanings, sections

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""What may be in the place of a number: a variable of the environment. See ``environment``."""


def json_schema() -> dict[str, Any]:
    """The schema, as JSON Schema of the draft 2020-12."""
    document = schema().model_json_schema()
    whole = schema().__name__
    for name, section in sections().items():
        options = (document if name == whole else document["$defs"][name])["properties"]
        for option, meaning in meanings(section).items():
            options[option]["description"] = meaning
        if "dialects" in options:
            options["dialects"]["items"] = {"enum": list(DIALECTS)}
    # the file may include another that has them
    del document["required"]
    return {"$schema": DIALECT, **_for_editors(document), "title": "Interlingua"}


def _for_editors(part: Any) -> Any:
    """``part`` without the titles that pydantic makes of names and without absent defaults; a number may be a
    variable."""
    if isinstance(part, list):
        return [_for_editors(each) for each in part]
    if not isinstance(part, dict):
        return part
    kept: dict[str, Any] = {}
    for key, value in part.items():
        if key in ("properties", "$defs"):
            kept[key] = {name: _for_editors(each) for name, each in value.items()}
        elif not (key == "title" or (key == "default" and value is None)):
            kept[key] = _for_editors(value)
    if part.get("type") not in ("integer", "number", "boolean"):
        return kept
    about = {key: kept.pop(key) for key in ("description", "default") if key in kept}
    return {**about, "anyOf": [kept, _VARIABLE]}
