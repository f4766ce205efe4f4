"""The page of metrics and the series behind it."""

from __future__ import annotations

import json

from interlingua.protocols.grps.page import LATENCIES, SCRIPT, TRENDS, page, series_json
from interlingua.translator.serving.trends import Trends


def test_a_series_has_the_points_of_the_original() -> None:
    trends = Trends()
    trends.count(2_000_000, True)
    metrics = trends.metrics()
    for name in TRENDS:
        document = json.loads(series_json(name, metrics) or b"")
        assert document["label"] == "trend"
        assert [at for at, _ in document["data"]] == list(range(174))
    assert json.loads(series_json("*fail_rate(%)", metrics) or b"")["data"][29] == [29, 100]
    spread = json.loads(series_json(LATENCIES, metrics) or b"")
    assert spread["label"] == "cdf"
    assert spread["data"] == [[at, 2.0] for at in (*range(10, 100, 10), *range(91, 102))]
    assert series_json("*nothing", metrics) is None


def test_the_page_lists_every_line_and_loads_nothing_remote() -> None:
    text = page(Trends().metrics()).decode()
    for name in (*TRENDS, LATENCIES):
        assert f'data-name="{name}"' in text
    assert "://" not in text
    assert b"://" not in SCRIPT
    assert text.count("<script") == 1
