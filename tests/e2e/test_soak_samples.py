"""The judgement of a soak: a slope fails it, a peak and the time before it is warm do not."""

from __future__ import annotations

import asyncio
from xml.etree import ElementTree

import pytest

from tests.e2e.soak.plot import svg
from tests.e2e.soak.samples import LEAK_BYTES, LIMITS, SECS, Gate, growth, limits, warm_secs


def _samples(values: list[float]) -> dict[str, list[float]]:
    return {SECS: [10.0 * place for place in range(len(values))], **dict.fromkeys(LIMITS, values)}


def test_a_slope_is_the_growth_in_the_warm_time() -> None:
    found = growth(_samples([100 + 2.0 * place for place in range(100)]))
    assert list(found.values()) == [pytest.approx(118.0)] * len(LIMITS)


@pytest.mark.parametrize("at", [50, 99])
def test_a_peak_is_no_slope(at: int) -> None:
    values = [100.0 + place % 2 for place in range(100)]
    values[at] = 1000.0
    assert all(abs(each) < 1.5 for each in growth(_samples(values)).values())


def test_what_is_taken_before_it_is_warm_may_stay() -> None:
    values = [min(place, 40) * 10.0 for place in range(100)]
    assert set(growth(_samples(values)).values()) == {0.0}


@pytest.mark.parametrize("per_sec", [150, 600, 3000])
@pytest.mark.parametrize("secs", [60, 1800])
def test_a_leak_of_a_kilobyte_per_request_fails(per_sec: int, secs: int) -> None:
    """Memory between samples varies by pages, and once by a peak."""
    count = secs // 3
    times = [3.0 * place for place in range(count)]
    noise = [0.3 * (place * 7 % 5) for place in range(count)]
    noise[-3] += 40.0
    leaking = [200 + each + per_sec * LEAK_BYTES * at / 2**20 for at, each in zip(times, noise, strict=True)]
    most = limits(secs, per_sec * secs)["memory, MiB"]
    for values, fails in ((leaking, True), ([200 + each for each in noise], False)):
        found = growth({SECS: times, **dict.fromkeys(LIMITS, values)})["memory, MiB"]
        assert (found >= most) is fails, (found, most)


def test_a_plot_has_a_panel_for_each_measure() -> None:
    samples = _samples([float(place % 7) for place in range(30)])
    root = ElementTree.fromstring(svg("7 < 8", samples, warm_secs(samples), growth(samples)))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(LIMITS)
    assert all(len(line.attrib["points"].split()) == 30 for line in lines)
    assert root[0].text == "7 < 8"


async def test_a_gate_waits_for_the_work_before_it() -> None:
    gate, order = Gate(), []

    async def work(name: str) -> None:
        await gate.opened()
        with gate.work():
            await asyncio.sleep(0.02)
            order.append(name)

    first = asyncio.create_task(work("first"))
    await asyncio.sleep(0)
    second = asyncio.create_task(gate.rest())
    await asyncio.sleep(0)
    third = asyncio.create_task(work("third"))
    await second
    order.append("rest")
    gate.resume()
    await asyncio.gather(first, third)
    assert order == ["first", "rest", "third"]
