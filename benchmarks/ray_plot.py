"""Draws the replicas of a model over time, with the clients that send requests."""

from __future__ import annotations

from collections.abc import Sequence

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 900, 300, 50, 50, 40
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2937}.title{font-size:14px;font-weight:600}"
    ".grid{stroke:#d1d5db}.bg{fill:#fff}"
    "@media (prefers-color-scheme:dark){text{fill:#e5e7eb}.grid{stroke:#374151}.bg{fill:#111827}}"
)
_COLOURS = {"clients": "#9ca3af", "replicas": "#4f46e5"}


def svg(points: Sequence[tuple[float, int, int]]) -> str:
    """The drawing of ``points``: seconds, clients, replicas."""
    end = points[-1][0]
    most = max(max(clients, replicas) for _, clients, replicas in points)

    def across(secs: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * secs / end

    def up(count: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * count / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"><style>{_STYLE}</style>',
        f'<rect class="bg" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text class="title" x="{_LEFT}" y="22">Replicas under a step of load, by seconds</text>',
    ]
    for count in range(0, most + 1, 2):
        y = up(count)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{count}</text>')
    y = _HEIGHT - _BOTTOM + 18
    seconds = range(0, int(end) + 1, 10)
    parts += [f'<text x="{across(secs):.1f}" y="{y}" text-anchor="middle">{secs}</text>' for secs in seconds]
    for column, (name, colour) in enumerate(_COLOURS.items(), 1):
        line = " ".join(f"{across(point[0]):.1f},{up(point[column]):.1f}" for point in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{line}"/>')
        x = _WIDTH - 240 + 110 * (column - 1)
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="22">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])
