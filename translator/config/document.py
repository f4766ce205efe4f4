"""YAML text as plain values, and the line of each value.

Sequences become tuples, mappings dicts with text keys. Stricter than YAML: a key must be text and unique in
its mapping. ``options`` defines the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from interlingua.translator.config.environment import substituted

Path = tuple[str | int, ...]
"""The way to a value from the top of the document: keys, and indices into lists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error; ``line`` counts from 1, 0 is the file as a whole. ``source`` is the file, if it is another
    than that of the error."""

    line: int
    path: Path
    text: str
    source: str = ""


class ConfigError(Exception):
    """An invalid configuration. ``lines`` has one entry per problem, in the order of the file and then of the
    others: ``file:line: path.to.key: text``. ``problems`` are the same, each with its ``source``."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        files = list(dict.fromkeys((source, *(problem.source or source for problem in problems))))
        # problems of one line keep the order in which they were found
        named = [replace(problem, source=problem.source or source) for problem in problems]
        self.problems = sorted(named, key=lambda each: (files.index(each.source), each.line))
        self.lines = [_line(problem.source, problem) for problem in self.problems]
        super().__init__("\n".join(self.lines))


class Document:
    """A YAML document: its ``data``, and the ``problems`` that still allow to read it. Values refer to the
    variables of ``environment``, if that is present. Raises ``ConfigError`` if it is not YAML, has several
    documents or a value that contains itself."""

    def __init__(self, text: str, source: str, environment: Mapping[str, str] | None = None) -> None:
        self.source = source
        self._environment = environment
        self.problems: list[Problem] = []
        self._seen: dict[Node, Any] = {}
        try:
            self._loader = yaml.SafeLoader(text)
            self._root = self._loader.get_single_node()
            self.data: Any = {} if self._root is None else self._value(self._root, ())
        except yaml.MarkedYAMLError as error:
            raise self._unreadable(_words(error), error.problem_mark) from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            refused = f"not valid YAML: character U+{error.character:04X} is not allowed"
            raise ConfigError(source, [Problem(line, (), refused)]) from error
        except RecursionError as error:
            raise self._unreadable("nested too deeply", None) from error

    def line(self, path: Path) -> int:
        """The line of the value at ``path``, or of the nearest value around it that exists."""
        node = self._root
        line = 1 if node is None else node.start_mark.line + 1
        for part in path:
            if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            elif isinstance(node, MappingNode):
                # the last one counts: keys merged by '<<' come before the mapping's own
                found = [pair for pair in node.value if pair[0].value == part]
                if not found:
                    break
                key, node = found[-1]
                line = key.start_mark.line + 1
            else:
                break
        return line

    def _value(self, node: Node, path: Path) -> Any:
        if node in self._seen:  # an alias; its node is the anchor's
            if self._seen[node] is _UNFINISHED:
                raise self._unreadable("a value contains itself", node.start_mark)
            return self._seen[node]
        self._seen[node] = _UNFINISHED
        value: Any
        if isinstance(node, MappingNode):
            value = self._mapping(node, path)
        elif isinstance(node, SequenceNode):
            value = tuple(self._value(item, (*path, index)) for index, item in enumerate(node.value))
        else:
            value = self._scalar(node, path)
        self._seen[node] = value
        return value

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        first: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                raise self._unreadable("a key must be text", key.start_mark)
            name: str = key.value
            if key.tag not in _TEXT_KEYS:
                self._problem(line, (*path, name), "YAML does not read this key as text: put it in quotes")
            if name in first and key.tag != _MERGE:
                self._problem(line, (*path, name), f"is repeated, first on line {first[name]}")
            first.setdefault(name, line)
        self._loader.flatten_mapping(node)
        return {key.value: self._value(value, (*path, key.value)) for key, value in node.value}

    def _scalar(self, node: Node, path: Path) -> Any:
        if self._environment is not None and "$" in node.value:
            node = self._substituted(node, path, self._environment)
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # looks like a date or a number and is none
            raise self._unreadable(f"'{node.value}': {error}", node.start_mark) from error

    def _substituted(self, node: Node, path: Path, environment: Mapping[str, str]) -> Node:
        """A scalar with the values of its variables. Without quotes it has the type of the result."""
        try:
            text = substituted(node.value, environment)
        except ValueError as error:
            self._problem(node.start_mark.line + 1, path, str(error))
            return ScalarNode("tag:yaml.org,2002:null", "", node.start_mark, node.end_mark)
        resolve: Any = self._loader.resolve
        quoted = isinstance(node, ScalarNode) and node.style is not None
        tag = node.tag if quoted else resolve(ScalarNode, text, (True, False))
        return ScalarNode(tag, text, node.start_mark, node.end_mark)

    def _problem(self, line: int, path: Path, text: str) -> None:
        self.problems.append(Problem(line, path, text, self.source))

    def _unreadable(self, text: str, mark: yaml.Mark | None) -> ConfigError:
        line = 0 if mark is None else mark.line + 1
        return ConfigError(self.source, [*self.problems, Problem(line, (), f"not valid YAML: {text}")])


_UNFINISHED = object()
_MERGE = "tag:yaml.org,2002:merge"
_TEXT_KEYS = {"tag:yaml.org,2002:str", _MERGE}


def _words(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(part for part in (error.context, error.problem) if part)


def _line(source: str, problem: Problem) -> str:
    where = f"{source}:{problem.line}" if problem.line else source
    line = ": ".join(part for part in (where, dotted(problem.path), problem.text) if part)
    # quoted values may hold anything, and a problem stays on its line
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)


def dotted(path: Path) -> str:
    """``path`` in the form `models.resnet50.signature.inputs[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
