"""Reports of several processes as that of one: values that JSON has, merged by their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rules = Mapping[str, Callable[[Any, Any], Any]]
"""By the key of a value, how two of them become one."""


def first(one: Any, other: Any) -> Any:
    """The rule for what all processes report alike, and for the most important one."""
    return one


def worst(*states: str) -> Callable[[str, str], str]:
    """The rule for one of ``states``, the best first."""
    return lambda one, other: max(one, other, key=states.index)


def merged(one: Any, other: Any, rules: Rules) -> Any:
    """Numbers add up; mappings merge by key, lists by place; of text, the first one that is not empty stays,
    and of all else the first one. ``rules`` come before."""
    if isinstance(one, Mapping):
        keys = [*one, *(key for key in other if key not in one)]
        return {key: _of_key(key, one, other, rules) for key in keys}
    if isinstance(one, Sequence) and not isinstance(one, str):
        both = [merged(this, that, rules) for this, that in zip(one, other, strict=False)]
        return [*both, *one[len(both) :], *other[len(both) :]]
    if isinstance(one, str):
        return one or other
    if isinstance(one, bool) or one is None:
        return one
    return one + other


def _of_key(key: Any, one: Mapping[Any, Any], other: Mapping[Any, Any], rules: Rules) -> Any:
    if key not in one or key not in other:
        return one[key] if key in one else other[key]
    rule = rules.get(key)
    return merged(one[key], other[key], rules) if rule is None else rule(one[key], other[key])


def without(value: Any, gauges: frozenset[str]) -> Any:
    """A report of a process that has exited: what was in flight there, by the keys in ``gauges``, is 0."""
    if isinstance(value, Mapping):
        return {key: 0 if key in gauges else without(each, gauges) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [without(each, gauges) for each in value]
    return value
