"""Prometheus metrics: families of samples, and the two formats of their text: version 0.0.4, and OpenMetrics
1.0.0, which has exemplars. ``docs/adr/metrics.md`` says why this is no library.

Sources (``translator.admin.sources``) return families on request. Names end with their unit, counters with
``_total``, and times are in seconds, except in Triton's names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple

from interlingua.schemas import Latencies
from interlingua.schemas.status import LATENCY_BOUNDS_NS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

END = b"# EOF\n"
"""The last line of a text in OpenMetrics."""

Kind = Literal["counter", "gauge", "histogram", "summary"]
Labels = Mapping[str, str]

_NAME = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_SUFFIXES: Mapping[Kind, tuple[str, ...]] = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}

_NO_LABELS: Labels = {}


class Exemplar(NamedTuple):
    """A sampled request that a bucket counts: its trace id in hexadecimal, its value, and when it ended, in
    seconds since 1970."""

    trace_id: str
    value: float
    ended: float


class Sample(NamedTuple):
    """One value. ``suffix`` follows the family's name in histograms and summaries."""

    value: float
    labels: Labels = _NO_LABELS
    suffix: str = ""
    exemplar: Exemplar | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name with different labels. Raises ``ValueError`` for a name, label or suffix that
    Prometheus rejects."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is not a valid metric name")
        # thousands of samples: check each distinct suffix and label once
        for suffix in {sample.suffix for sample in self.samples}:
            if suffix not in _SUFFIXES[self.kind]:
                raise ValueError(f"a {self.kind} has no sample '{self.name}{suffix}'")
        for label in {label for sample in self.samples for label in sample.labels}:
            if not _LABEL.fullmatch(label):
                raise ValueError(f"'{label}' of metric '{self.name}' is not a valid label name")


def latency_samples(
    latencies: Latencies, labels: Labels, exemplars: Mapping[int, Exemplar] | None = None
) -> Iterator[Sample]:
    """The samples of a histogram in seconds, each with ``labels``, with ``exemplars`` by the number of their
    bucket."""
    below = list(accumulate(latencies.counts))
    known = exemplars or {}
    for place, (bound, count) in enumerate(zip(_LATENCY_BOUNDS, below, strict=True)):
        yield Sample(count, {**labels, "le": bound}, "_bucket", known.get(place))
    yield Sample(latencies.ns / 1e9, labels, "_sum")
    yield Sample(below[-1], labels, "_count")


def exposition(families: Iterable[Family], openmetrics: bool = False) -> bytes:
    """The text of ``families``, in order; that in OpenMetrics still needs its ``END``. Families of one name
    are merged, as Prometheus requires; the first one sets kind and help. Raises ``ValueError`` if their kinds
    differ."""
    joined: dict[str, tuple[Family, list[Sample]]] = {}
    for family in families:
        first, samples = joined.setdefault(family.name, (family, []))
        if first.kind != family.kind:
            raise ValueError(f"metric '{family.name}' is a {first.kind} here and a {family.kind} there")
        samples.extend(family.samples)
    lines: list[str] = []
    for name, (family, samples) in joined.items():
        lines += _head_of_openmetrics(family) if openmetrics else _head(family)
        lines.extend(
            f"{name}{suffix}{_braces(labels)} {_number(value)}"
            + (_exemplar(exemplar) if openmetrics and exemplar is not None else "")
            for value, labels, suffix, exemplar in samples
        )
    # a name from JSON may contain a lone surrogate, which UTF-8 cannot encode
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def _head(family: Family) -> tuple[str, str]:
    return f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"


def _head_of_openmetrics(family: Family) -> tuple[str, str]:
    """There ``_total`` is a suffix of the samples of a counter; one without it, as Triton's are, is none."""
    name, kind = family.name, str(family.kind)
    if kind == "counter":
        name, kind = (name[: -len("_total")], kind) if name.endswith("_total") else (name, "unknown")
    return f"# HELP {name} {_escaped_value(family.help)}", f"# TYPE {name} {kind}"


def _exemplar(exemplar: Exemplar) -> str:
    return f' # {{trace_id="{exemplar.trace_id}"}} {exemplar.value!r} {exemplar.ended:.3f}'


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped_value(value)}"' for name, value in labels.items()]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


@lru_cache(maxsize=8192)
def _escaped_value(text: str) -> str:
    # a model's names repeat in all of its samples
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # bool and NumPy integers included
    return str(int(value)) if isinstance(value, int) else repr(float(value))


_LATENCY_BOUNDS = tuple(_number(bound) for bound in (*(ns / 1e9 for ns in LATENCY_BOUNDS_NS), math.inf))
