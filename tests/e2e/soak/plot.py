"""Draws samples as an SVG: one panel per measure, above each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from tests.e2e.soak.samples import LIMITS, SECS, Samples

_WIDTH, _PANEL, _LEFT, _TOP, _GAP = 900, 76, 70, 34, 34
_STYLE = (
    "text{font:12px sans-serif;fill:#444}.title{font-weight:bold}"
    ".line{fill:none;stroke:#2166ac;stroke-width:1.5}.warm{fill:#8883}.axis{stroke:#aaa}"
)


def svg(title: str, samples: Samples, warm_secs: float, growth: Mapping[str, float]) -> str:
    """A panel per measure with its highest value, its lowest and its growth; the time before ``warm_secs`` is
    shaded."""
    height = _TOP + len(LIMITS) * (_PANEL + _GAP)
    panels = "".join(
        _panel(place, name, samples, warm_secs, growth[name]) for place, name in enumerate(LIMITS)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
        f'<title>{escape(title)}</title><style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text class="title" x="{_LEFT}" y="16">{escape(title)}</text>{panels}</svg>\n'
    )


def _panel(place: int, name: str, samples: Samples, warm_secs: float, growth: float) -> str:
    top = _TOP + place * (_PANEL + _GAP) + 14
    bottom = top + _PANEL - 14
    values, end = samples[name], samples[SECS][-1]
    low, high = min(values), max(values)
    warm = _across(warm_secs, end) - _LEFT
    points = " ".join(_points(samples[SECS], values, low, high, bottom))
    return (
        f'<rect class="warm" x="{_LEFT}" y="{top}" width="{warm:.1f}" height="{bottom - top}"/>'
        f'<text class="title" x="{_LEFT}" y="{top - 5}">{escape(name)}</text>'
        f'<text x="{_WIDTH - 10}" y="{top - 5}" text-anchor="end">growth {growth:+.2f}, at most {LIMITS[name]:g}</text>'
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">{low:.4g}</text>'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{bottom}" y2="{bottom}"/>'
        f'<text x="{_WIDTH - 10}" y="{bottom + 14}" text-anchor="end">{end:.0f} s</text>'
        f'<polyline class="line" points="{points}"/>'
    )


def _points(secs: list[float], values: list[float], low: float, high: float, bottom: int) -> Iterator[str]:
    scale = (_PANEL - 20) / (high - low) if high > low else 0.0
    for at, value in zip(secs, values, strict=True):
        yield f"{_across(at, secs[-1]):.1f},{bottom - 2 - (value - low) * scale:.1f}"


def _across(at: float, end: float) -> float:
    return _LEFT + at / end * (_WIDTH - 10 - _LEFT)
