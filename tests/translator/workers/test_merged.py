"""The metrics of several processes as those of one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from interlingua.translator import mirror
from interlingua.translator.admin import overview
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.mirror import MirrorReport, OutputReport
from interlingua.translator.workers.merged import merged


def values(families: dict[str, list[Family]]) -> dict[tuple[str, str, tuple[tuple[str, str], ...]], float]:
    return {
        (family.name, sample.suffix, tuple(sample.labels.items())): sample.value
        for family in merged(families)
        for sample in family.samples
    }


def test_counters_and_buckets_add_up_by_their_labels() -> None:
    def of(count: int) -> list[Family]:
        histogram = [Sample(count, {"le": "1"}, "_bucket"), Sample(2 * count, {}, "_count")]
        return [
            Family(
                "requests_total", "counter", "", [Sample(count, {"model": "a"}), Sample(1, {"model": "b"})]
            ),
            Family("duration_seconds", "histogram", "", histogram),
        ]

    assert values({"one": of(3), "other": of(4), "third": []}) == {
        ("requests_total", "", (("model", "a"),)): 7,
        ("requests_total", "", (("model", "b"),)): 2,
        ("duration_seconds", "_bucket", (("le", "1"),)): 7,
        ("duration_seconds", "_count", ()): 14,
    }


def test_a_fact_that_several_see_counts_once() -> None:
    def of(online: int, draining: int) -> list[Family]:
        return [
            Family("interlingua_online", "gauge", "", [Sample(online)]),
            Family("interlingua_draining", "gauge", "", [Sample(draining)]),
        ]

    found = values({"one": of(1, 0), "other": of(0, 1)})
    assert found == {("interlingua_online", "", ()): 0, ("interlingua_draining", "", ()): 1}


def test_regions_that_all_front_ends_have_count_once() -> None:
    status = [SimpleNamespace(byte_size=size) for size in (100, 28)]
    access = SimpleNamespace(recorded=0, dropped=0, suppressed=0)
    service: Any = SimpleNamespace(
        shared_memory=SimpleNamespace(status=lambda: status), access=access, draining=False, offline=False
    )

    async def of() -> list[Family]:
        return list(overview.families(service))

    one, other = asyncio.run(of()), asyncio.run(of())
    found = values({"one": one, "other": other})
    assert found["interlingua_shared_memory_regions", "", ()] == 2
    assert found["interlingua_shared_memory_bytes", "", ()] == 128


def test_the_largest_errors_of_a_mirror_do_not_add_up() -> None:
    def of(absolute: float, relative: float) -> list[Family]:
        report = MirrorReport("route", "other", 100.0, 0.0, 0.0)
        report.counts.outputs["y"] = OutputReport(compared=1, max_absolute=absolute, max_relative=relative)
        return list(mirror.families([report]))

    found = values({"one": of(0.5, 0.25), "other": of(0.125, 0.75)})
    labels = (("mirror", "route"), ("to", "other"), ("output", "y"))
    assert found["interlingua_mirror_output_max_absolute_error", "", labels] == 0.5
    assert found["interlingua_mirror_output_max_relative_error", "", labels] == 0.75
    assert found["interlingua_mirror_outputs_total", "", labels] == 2


def test_metrics_of_a_process_keep_its_name() -> None:
    family = Family("process_open_fds", "gauge", "", [Sample(5)])
    assert values({"one": [family], "other": [family]}) == {
        ("process_open_fds", "", (("process", "one"),)): 5,
        ("process_open_fds", "", (("process", "other"),)): 5,
    }
