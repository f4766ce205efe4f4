"""The text of metrics, read back by the parser of Prometheus' own client."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from interlingua.schemas import Latencies
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.admin.metrics import END, Exemplar, Family, Sample, exposition, latency_samples


def parsed(*families: Family) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples by their name, as a reader sees them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(exposition(families).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def test_text_of_two_families() -> None:
    families = [
        Family("nv_inference_count", "counter", "Number of inferences", [Sample(3, {"model": "a"})]),
        Family("interlingua_up_seconds", "gauge", "Since when", [Sample(0.5)]),
    ]
    assert exposition(families) == (
        b"# HELP nv_inference_count Number of inferences\n"
        b"# TYPE nv_inference_count counter\n"
        b'nv_inference_count{model="a"} 3\n'
        b"# HELP interlingua_up_seconds Since when\n"
        b"# TYPE interlingua_up_seconds gauge\n"
        b"interlingua_up_seconds 0.5\n"
    )


def test_nothing_is_no_text() -> None:
    assert exposition([]) == b""


def test_a_family_without_samples_is_listed() -> None:
    assert exposition([Family("a", "gauge", "b", [])]) == b"# HELP a b\n# TYPE a gauge\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_whatever_a_label_holds_comes_back(value: str) -> None:
    # Python's parser splits lines where Prometheus does not, so the text is looked at as it is
    *_, sample, end = exposition([Family("a", "gauge", "", [Sample(1, {"x": value})])]).decode().split("\n")
    assert end == ""
    inside = re.fullmatch(r'a\{x="((?:[^"\\]|\\["\\n])*)"\} 1', sample, re.DOTALL)
    assert inside is not None
    assert re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), inside[1]) == value


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\\nb", "a\nb", '\\"', "{}", "a,b=c", "ä漢😀"])
def test_a_reader_gets_the_label_back(name: str) -> None:
    assert parsed(Family("a", "gauge", "x\n\\y", [Sample(1, {"model": name})])) == {
        "a": [({"model": name}, 1.0)]
    }


def test_a_lone_surrogate_does_not_end_the_text() -> None:
    assert exposition([Family("a", "gauge", "", [Sample(1, {"model": "x\ud800"})])]).endswith(
        b'a{model="x?"} 1\n'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (1e300, "1e+300"),
        (0.1, "0.1"),
        (2**63, "9223372036854775808"),
        (True, "1"),
        (np.float32(0.5), "0.5"),
        (np.int64(7), "7.0"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert exposition([Family("a", "gauge", "", [Sample(value)])]).decode().splitlines()[-1] == f"a {text}"


def test_families_of_one_name_are_one() -> None:
    first = Family("a", "counter", "one", [Sample(1, {"x": "1"})])
    other = Family("b", "counter", "", [Sample(3)])
    second = Family("a", "counter", "two", [Sample(2, {"x": "2"})])
    text = exposition([first, other, second]).decode()
    assert text.count("# TYPE a ") == 1
    assert text.splitlines()[:4] == ["# HELP a one", "# TYPE a counter", 'a{x="1"} 1', 'a{x="2"} 2']


def test_families_of_one_name_must_agree() -> None:
    with pytest.raises(ValueError, match="metric 'a' is a counter here and a gauge there"):
        exposition([Family("a", "counter", "", []), Family("a", "gauge", "", [])])


@pytest.mark.parametrize(
    ("name", "sample", "message"),
    [
        ("a-b", Sample(1), "'a-b' is not a valid metric name"),
        ("", Sample(1), "'' is not a valid metric name"),
        ("a", Sample(1, {"b c": "d"}), "'b c' of metric 'a' is not a valid label name"),
        ("a", Sample(1, {"b:c": "d"}), "'b:c' of metric 'a' is not a valid label name"),
        ("a", Sample(1, {}, "_sum"), "a gauge has no sample 'a_sum'"),
    ],
)
def test_what_no_client_could_read_is_refused(name: str, sample: Sample, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Family(name, "gauge", "", [sample])


def test_a_histogram_counts_what_is_below_each_bound() -> None:
    latencies = Latencies()
    below, bound, *_ = LATENCY_BOUNDS_NS
    for ns in (below, below + 1, bound, LATENCY_BOUNDS_NS[-1] + 1):
        latencies.add(ns)
    stage = {"stage": "decode"}
    found = parsed(Family("a_seconds", "histogram", "", list(latency_samples(latencies, stage))))
    buckets = {float(labels.pop("le")): (labels, count) for labels, count in found["a_seconds_bucket"]}
    assert [buckets[ns / 1e9] for ns in (below, bound)] == [(stage, 1.0), (stage, 3.0)]
    assert buckets[LATENCY_BOUNDS_NS[-1] / 1e9] == (stage, 3.0)
    assert buckets[math.inf] == (stage, 4.0)
    assert found["a_seconds_sum"] == [(stage, pytest.approx(latencies.ns / 1e9))]
    assert found["a_seconds_count"] == [(stage, 4.0)]


@given(st.lists(st.integers(0, 10**11)))
def test_a_histogram_loses_nothing(latencies_ns: list[int]) -> None:
    latencies = Latencies()
    for ns in latencies_ns:
        latencies.add(ns)
    *buckets, total, count = latency_samples(latencies, {})
    assert count.value == len(latencies_ns) == buckets[-1].value
    assert total.value == sum(latencies_ns) / 1e9
    for bucket in buckets:
        bound = float(bucket.labels["le"]) * 1e9
        assert bucket.value == sum(
            ns <= (bound if math.isinf(bound) else round(bound)) for ns in latencies_ns
        )


def test_openmetrics_has_exemplars() -> None:
    latencies = Latencies()
    latencies.add(60_000)
    exemplars = {1: Exemplar("0af7651916cd43dd8448eb211c80319c", 6e-5, 1700000000.5)}
    families = [
        Family(
            "a_seconds", "histogram", 'with "quotes"', list(latency_samples(latencies, {"x": "y"}, exemplars))
        ),
        Family("b_total", "counter", "all", [Sample(2)]),
        Family("nv_c", "counter", "of Triton", [Sample(3)]),
    ]
    text = (exposition(families, openmetrics=True) + END).decode()
    found = {family.name: family for family in openmetrics_families(text)}
    assert {name: family.type for name, family in found.items()} == {
        "a_seconds": "histogram",
        "b": "counter",
        "nv_c": "unknown",
    }
    assert found["a_seconds"].documentation == 'with "quotes"'
    (marked,) = [sample for sample in found["a_seconds"].samples if sample.exemplar is not None]
    assert marked.labels["le"] == repr(LATENCY_BOUNDS_NS[1] / 1e9)
    assert marked.exemplar.labels == {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
    assert (marked.exemplar.value, float(marked.exemplar.timestamp)) == (6e-5, 1700000000.5)
    # the other format cannot carry one
    assert b" # {" not in exposition(families)
