"""Draws curves on two logarithmic scales, in the style of ``benchmarks.plots``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.plots import COLOURS, STYLE

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 420, 90, 20, 100, 40


def svg(title: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A line for each curve, whose values are above 0."""
    points = [point for curve in curves.values() for point in curve]
    right, bottom, top = (
        math.ceil(math.log10(max(x for x, _ in points))),
        math.floor(math.log10(min(y for _, y in points))),
        math.ceil(math.log10(max(y for _, y in points))),
    )

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + math.log10(x) / right * (_WIDTH - _LEFT - _RIGHT)
        share = (math.log10(y) - bottom) / (top - bottom)
        return round(across, 1), round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="bg" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text class="title" x="10" y="20">{escape(title)} (logarithmic)</text>',
    ]
    for decade in range(right + 1):
        x, low = place(10**decade, 10**bottom)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{low}"/>')
        parts.append(f'<text x="{x}" y="{low + 18}" text-anchor="middle">{10**decade:,}</text>')
    for decade in range(bottom, top + 1):
        x, y = place(1, 10**decade)
        parts.append(f'<line class="grid" x1="{x}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{10**decade:,}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        x, y = 10 + number % 2 * 440, 30 + number // 2 * 20
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{y + 10}">{escape(name)}</text>')
        line = " ".join("{},{}".format(*place(*point)) for point in curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>\n"])
