"""Loads a file as a :class:`Config`, or reports all of its errors, each with its line."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from interlingua.translator.config import document, renamed, wording
from interlingua.translator.config.collisions import collisions
from interlingua.translator.config.composition import ComposedFile
from interlingua.translator.config.context import Installation, ValidationContext
from interlingua.translator.config.cycles import endless
from interlingua.translator.config.document import ConfigError, Problem
from interlingua.translator.config.identities import unknown_users
from interlingua.translator.config.options import Config
from interlingua.translator.config.peer_listener import peer_errors
from interlingua.translator.config.schema import schema, section_at

_log = logging.getLogger(__name__)

_LOG_FORMAT = re.compile(rb"""\blog_format["']?\s*:\s*["']?(json|text)\b""")


def load(path: str | Path) -> Config:
    """The configuration in the file at ``path`` and in those that it includes, with the variables of the
    environment. Raises ``ConfigError``."""
    return _validated(ComposedFile.of_file(path, os.environ), None)


def parse(text: str, source: str = "config", installation: Installation | None = None) -> Config:
    """The configuration in ``text``; ``source`` is its name in errors. ``installation`` is this program by
    default. Raises ``ConfigError``."""
    return _validated(ComposedFile(text, source, os.environ), installation)


def stated_log_format(path: str | Path) -> str:
    """The ``server.log_format`` of a file that cannot be loaded, empty if it states none that is readable."""
    try:
        found = ComposedFile.of_file(path, os.environ).data["server"]["log_format"]
    except ConfigError:
        # not YAML
        stated = _LOG_FORMAT.search(Path(path).read_bytes()) if Path(path).is_file() else None
        return "" if stated is None else stated[1].decode()
    except (KeyError, TypeError):
        return ""
    return str(found)


def former_names(path: str | Path) -> list[Problem]:
    """A warning for each option that the file at ``path`` states under a former name; none if it cannot be
    read."""
    if not renamed.RENAMED:  # large files take a while
        return []
    try:
        read = ComposedFile.of_file(path, os.environ)
    except ConfigError:
        return []
    found = [read.problem(name.path, name.warning) for name in renamed.accepted_names(read.data)]
    return read.error(found).problems


def log_former_names(path: str | Path) -> None:
    """Log these warnings."""
    for line in ConfigError(str(path), former_names(path)).lines:
        _log.warning("option renamed", extra={"facts": {"reason": line}})


def _validated(read: ComposedFile, installation: Installation | None) -> Config:
    problems = [*read.problems, *_renamed(read)]
    context = ValidationContext.of(read.data, installation or Installation.present())
    refused = {problem.path for problem in problems}
    try:
        config = schema().model_validate(read.data, context=context)
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False):
            # pydantic also reports a list as too short if it refused the entries
            if error["type"] != "too_short" or not error["input"]:
                problem = _problem(read, error)
                if problem.path not in refused:  # the value could not be read at all
                    problems.append(problem)
    else:
        found = (*collisions(config), *endless(config), *unknown_users(config), *peer_errors(config))
        problems += [read.problem(path, text) for path, text in found]
    if problems:
        raise read.error(problems)
    return config


def _renamed(read: ComposedFile) -> list[Problem]:
    """Give options their present names; the errors of those that are stated under both."""
    found = renamed.accepted_names(read.data)
    both = [name for name in found if read.states(name.present)]
    for name in found:
        if name not in both:
            read.rename(name.path, name.present)
    return [
        read.problem(name.path, f"is the former name of '{name.option.name}', which is stated too")
        for name in both
    ]


def _problem(read: ComposedFile, details: ErrorDetails) -> Problem:
    # pydantic marks an error of the key itself so; the marker is not part of the path
    path: document.Path = tuple(part for part in details["loc"] if part != "[key]")
    return read.problem(path, _text(details))


def _text(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(details)
    if kind == "literal_error":
        return _not_a_choice(details)
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind].format(**context)}, not {wording.shown(details['input'])}"
    if kind == "value_error":
        return str(context["error"])
    return _FIXED.get(kind, details["msg"])


def _unknown_key(details: ErrorDetails) -> str:
    *above, key = details["loc"]
    section = section_at(tuple(above))
    if key in section.planned:
        return "is not available yet"
    if former := renamed.hint(tuple(details["loc"])):
        return former
    return wording.unknown("key", str(key), section.model_fields)


def _not_a_choice(details: ErrorDetails) -> str:
    choices = [word.strip("'") for word in details["ctx"]["expected"].replace(" or ", ", ").split(", ")]
    given = details["input"]
    if isinstance(given, str):
        return wording.unknown("value", given, choices)
    return f"must be one of {', '.join(choices)}, not {wording.shown(given)}"


_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "greater_than": "above {gt:.15g}",
    "greater_than_equal": "at least {ge:.15g}",
    "less_than_equal": "at most {le:.15g}",
}
"""The expected value, by the type of pydantic's error."""

_FIXED = {
    "missing": "is missing",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
