"""Renders the chart in ``deploy/helm``: the part of Go's templates and of Helm's functions that it uses.

It is a stand-in for ``helm template``, whose program is not in the package registries of these tests. An
unknown function or action raises, so that a chart beyond this part fails its test.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()|]|[^\s()|]+')


@dataclass
class Block:
    """An action and what it encloses; ``text`` of a literal."""

    action: str
    text: str = ""
    body: list[Block] = field(default_factory=list)
    otherwise: list[Block] = field(default_factory=list)


def render(chart: Path, release: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The objects of ``helm template RELEASE CHART --values VALUES``."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    own = yaml.safe_load((chart / "values.yaml").read_text())
    context = {
        "Chart": {"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
        "Release": {"Name": release, "Service": "Helm", "Namespace": "default"},
        "Values": merged(own, values or {}),
    }
    renderer = _Renderer()
    for path in sorted((chart / "templates").glob("*.tpl")):
        renderer.render(path.read_text(), context)
    objects: list[dict[str, Any]] = []
    for path in sorted((chart / "templates").glob("*.yaml")):
        rendered = renderer.render(path.read_text(), context)
        objects += [each for each in yaml.safe_load_all(rendered) if each]
    return objects


def merged(own: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The values of a chart below those of a user: maps merge, everything else is replaced."""
    result = dict(own)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(own.get(key), dict)
        result[key] = merged(own[key], value) if both else value
    return result


class _Renderer:
    def __init__(self) -> None:
        self._defined: dict[str, list[Block]] = {}
        self._functions: dict[str, Callable[..., Any]] = {
            "default": lambda fallback, value=None: value or fallback,
            "include": lambda name, context: "".join(self._run(self._defined[name], context)),
            "indent": _indent,
            "nindent": lambda width, text: "\n" + _indent(width, text),
            "not": lambda value: not value,
            "printf": lambda form, *values: form % values,
            "quote": lambda value: json.dumps(str(value)),
            "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
            "toYaml": lambda value: yaml.safe_dump(value, sort_keys=False).rstrip("\n"),
            "trunc": lambda width, text: text[:width],
        }

    def render(self, template: str, context: dict[str, Any]) -> str:
        """``template`` with the values of ``context``; its definitions stay."""
        return "".join(self._run(_parse(template), context))

    def _run(self, blocks: list[Block], context: Any) -> Iterator[str]:
        for block in blocks:
            word, _, rest = block.action.partition(" ")
            if not word:
                yield block.text
            elif word == "define":
                self._defined[json.loads(rest)] = block.body
            elif word == "if":
                yield from self._run(block.body if self._value(rest, context) else block.otherwise, context)
            elif word == "with":
                value = self._value(rest, context)
                yield from self._run(block.body, value) if value else self._run(block.otherwise, context)
            elif word == "range":
                for value in self._value(rest, context):
                    yield from self._run(block.body, value)
            else:
                yield str(self._value(block.action, context))

    def _value(self, pipeline: str, context: Any) -> Any:
        tokens = _TOKEN.findall(pipeline)
        value = self._pipeline(tokens, context)
        if tokens:
            raise ValueError(f"left over in {{{{ {pipeline} }}}}: {tokens}")
        return value

    def _pipeline(self, tokens: list[str], context: Any) -> Any:
        piped: tuple[Any, ...] = ()
        while True:
            command: list[Any] = []
            while tokens and tokens[0] not in "|)":
                command.append(self._operand(tokens, context))
            name, *arguments = command
            value = name(*arguments, *piped) if callable(name) else name
            if not tokens or tokens[0] == ")":
                return value
            tokens.pop(0)
            piped = (value,)

    def _operand(self, tokens: list[str], context: Any) -> Any:
        token = tokens.pop(0)
        if token == "(":
            value = self._pipeline(tokens, context)
            tokens.pop(0)
            return value
        if token.startswith("."):
            for name in filter(None, token.split(".")):
                context = context.get(name)
            return context
        if token[0] == '"' or token.isdigit():
            return json.loads(token)
        return self._functions[token]


def _parse(template: str) -> list[Block]:
    root = Block("root")
    stack, target, end, strip = [root], root.body, 0, False
    targets = [target]
    for found in _ACTION.finditer(template):
        text = template[end : found.start()]
        text = text.lstrip() if strip else text
        targets[-1].append(Block("", text.rstrip() if found[1] else text))
        end, strip, action = found.end(), bool(found[3]), found[2]
        if action == "end":
            stack.pop()
            targets.pop()
        elif action == "else":
            targets[-1] = stack[-1].otherwise
        else:
            block = Block(action)
            targets[-1].append(block)
            if action.partition(" ")[0] in ("define", "if", "with", "range"):
                stack.append(block)
                targets.append(block.body)
    if len(stack) > 1:
        raise ValueError(f"no end of {{{{ {stack[-1].action} }}}}")
    rest = template[end:]
    root.body.append(Block("", rest.lstrip() if strip else rest))
    return root.body


def _indent(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))
