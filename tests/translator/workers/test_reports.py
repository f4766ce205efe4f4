"""Reports of several processes as those of one, whatever answers or has exited."""

from __future__ import annotations

import pickle
from typing import Any

from interlingua.runtime.models.statistics import count_failure, count_success
from interlingua.schemas import Duration, ErrorCode, InferenceError, VersionStatistics
from interlingua.translator.admin import upstreams
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.admin.model_report import ModelReport, VersionReport
from interlingua.translator.mirror import MirrorReport
from interlingua.translator.serving.trends import Trends
from interlingua.translator.workers.reports import METRICS, REPORTS, LastReports, merge


def counted(*milliseconds: int, size: int = 1) -> VersionStatistics:
    found = VersionStatistics()
    for each in milliseconds:
        ns = each * 1_000_000
        count_success(found, size, (0, 1, 2, ns - 1, ns, 0))
    return found


def test_statistics_of_two_processes_are_those_of_one() -> None:
    one, other, both = counted(1, 20), counted(7, size=4), counted(1, 20)
    count_success(both, 4, (0, 1, 2, 6_999_999, 7_000_000, 0))
    for each in (other, both):
        count_failure(each, 1, 0, InferenceError(ErrorCode.UNAVAILABLE, "gone"))
    before = pickle.dumps(other)
    one.merge(other)
    # when they failed differs
    assert one.by_batch_size.pop(1).failed.count == both.by_batch_size.pop(1).failed.count == 1
    one.last_inference_ms = both.last_inference_ms
    assert one == both
    assert pickle.dumps(other) == before


def test_reports_stay_as_they_are() -> None:
    """A process that does not answer adds its last report again and again."""

    def report(count: int) -> dict[str, ModelReport]:
        versions = {"1": VersionReport("READY", statistics=counted(*[1] * count))}
        return {"remote": ModelReport("upstream a", "READY", "", versions)}

    found = [report(1), report(2), report(3)]
    for _ in range(2):
        rendered = REPORTS["models"].render(merge(("report", "models"), found))
        assert rendered["remote"]["versions"][0]["requests"] == 6


def test_a_model_is_ready_if_one_process_reaches_it() -> None:
    found = merge(
        ("report", "models"),
        [
            {
                "here": ModelReport("here", "READY"),
                "remote": ModelReport("upstream a", "UNAVAILABLE", "gone"),
            },
            {
                "here": ModelReport("here", "UNAVAILABLE", "late"),
                "remote": ModelReport("upstream a", "READY"),
            },
        ],
    )
    assert (found["here"].state, found["here"].reason) == ("READY", "")
    assert (found["remote"].state, found["remote"].reason) == ("READY", "")


def test_servers_of_an_upstream_have_the_worst_state() -> None:
    def report(state: str, breaker: str, failures: int, why: str) -> dict[str, Any]:
        server = {"url": "a", "state": state, "breaker": breaker, "probed": True, "failures": failures}
        return {"u": {"followed": True, "servers": [{**server, "last_failure": why, "requests": 5}]}}

    found = merge(
        ("report", "upstreams"),
        [report("in use", "closed", 0, ""), report("ejected", "open", 3, "reset")],
    )
    assert found["u"]["servers"] == [
        {
            "url": "a",
            "state": "ejected",
            "breaker": "open",
            "probed": True,
            "failures": 3,
            "last_failure": "reset",
            "requests": 10,
        }
    ]


def test_servers_are_those_of_a_process_that_follows_the_upstream() -> None:
    def report(followed: bool, *urls: str) -> dict[str, Any]:
        server = {"state": "in use", "breaker": "closed", "requests": 1, "last_failure": ""}
        return {"u": {"followed": followed, "servers": [{"url": url, **server} for url in urls]}}

    at_start, exited = report(False, "a", "b"), upstreams.without_process(report(True, "b", "c"))
    for reports in ([at_start, report(True, "c", "d"), exited], [report(True, "c", "d"), exited, at_start]):
        found = merge(("report", "upstreams"), reports)["u"]
        assert found["followed"] and [each["url"] for each in found["servers"]] == ["c", "d"]
        # counters do not decrease
        assert [each["requests"] for each in found["servers"]] == [2, 1]
    found = merge(("report", "upstreams"), [at_start, at_start])["u"]
    assert not found["followed"] and [each["url"] for each in found["servers"]] == ["a", "b"]


def test_mirrors_add_up() -> None:
    def report(equal: int, different: int) -> list[MirrorReport]:
        found = MirrorReport("m", "other", 100, 0, 0, held=1)
        found.counts.compared, found.counts.equal = equal + different, equal
        found.counts.different = different
        return [found]

    whole = merge(("report", "mirror"), [report(3, 0), report(2, 1)])
    rendered = REPORTS["mirror"].render(whole)
    assert rendered["different"]
    (mirror,) = rendered["mirrors"]
    assert (mirror["compared"], mirror["equal"], mirror["held"]["requests"]) == (6, 5, 2)


def test_trends_of_processes_add_up() -> None:
    trends = [Trends(), Trends()]
    for each in trends:
        each.count(2_000_000, False)
        each.count(4_000_000, True)
    whole = merge(("count", "trends"), [each.counts() for each in trends]).metrics().trends
    assert whole["failed_percent"][29] == 50
    assert whole["latency_mean_ms"][29] == 3
    assert sum(whole["requests_per_second"][114:]) == 4


def test_what_has_exited_stays_counted() -> None:
    last = LastReports()
    kind = "count", "operations"
    assert last.take(kind, None) == []
    assert last.take(kind, {"status": Duration(2, 20)}) == [{"status": Duration(2, 20)}]
    # stopped
    assert last.take(kind, None) == [{"status": Duration(2, 20)}]
    for _ in range(2):
        last.exited()
        assert last.take(kind, None) == [{"status": Duration(2, 20)}]
    last.take(kind, {"status": Duration(1, 5)})
    last.exited()
    assert last.of_exited(kind) == [{"status": Duration(3, 25)}]


def test_gauges_end_with_their_process() -> None:
    last = LastReports()
    families = [
        Family("requests_total", "counter", "", [Sample(5)]),
        Family("connections", "gauge", "", [Sample(5)]),
        Family("process_cpu_seconds_total", "counter", "", [Sample(5)]),
    ]
    last.take(METRICS, families)
    server = {"listeners": [{"address": "a", "dialects": {"oip": {"requests": 3, "in_flight": 1}}}]}
    last.take(("report", "server"), server)
    last.exited()
    assert [each.name for each in last.of_exited(METRICS)[0]] == ["requests_total"]
    (left,) = last.of_exited(("report", "server"))
    assert left["listeners"][0]["dialects"]["oip"] == {"requests": 3, "in_flight": 0}
