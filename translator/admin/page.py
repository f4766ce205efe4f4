"""The tables of the dashboard as HTML, for browsers without scripts: one self-contained document.

It has no scripts: browsers load it again every ten seconds. Names of models, and all text that clients or
servers choose, are escaped, and the content security policy allows only the page's own style."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from importlib.resources import files

from interlingua.protocols.wire import Headers
from interlingua.translator.admin.view import CHART_HEIGHT, CHART_WIDTH, Cell, Chart, Dashboard, Table


def _own(name: str) -> str:
    return (files("interlingua.translator.admin") / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_STYLE = _own("page.css")

HEADERS: Headers = (
    (
        "content-security-policy",
        f"default-src 'none'; style-src {_digest(_STYLE)}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
)
"""The headers of the page."""


def page(view: Dashboard) -> bytes:
    return "".join(_document(view)).encode(errors="replace")


def _document(view: Dashboard) -> Iterator[str]:
    state, tone = view.state
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="refresh" content="10">\n'
        f"<title>{escape(view.title)}: {escape(state)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{escape(view.title)}</h1>\n"
        f'<p id="state" role="status" class="{tone}">{escape(state)}</p>\n'
        "</header>\n<main>\n"
    )
    yield "<dl>\n"
    for place, (term, text) in enumerate(view.facts):
        yield f'<div><dt>{escape(term)}</dt><dd id="fact-{place}">{escape(text)}</dd></div>\n'
    yield '</dl>\n<section aria-label="Last minute" class="charts">\n'
    for chart in view.charts:
        yield _figure(chart)
    yield "</section>\n"
    for table in view.tables:
        yield from _section(table)
    links = ", ".join(f'<a href="{escape(link)}">{escape(link)}</a>' for link in view.links)
    yield f'</main>\n<nav aria-label="For machines">For machines: {links}</nav>\n'
    yield "</body>\n</html>\n"


def _figure(chart: Chart) -> str:
    return (
        f'<figure id="{escape(chart.id)}"><figcaption>{escape(chart.caption)} <b>{escape(chart.latest)}</b>'
        f'</figcaption><svg role="img" aria-label="{escape(chart.summary)}" preserveAspectRatio="none" '
        f'viewBox="0 -2 {CHART_WIDTH} {CHART_HEIGHT + 4}"><polyline points="{escape(chart.points)}"/></svg>'
        "</figure>\n"
    )


def _section(table: Table) -> Iterator[str]:
    name, caption = escape(table.id), escape(table.caption)
    here, not_here = ("", " hidden") if table.rows else (" hidden", "")
    yield (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{caption}</h2>\n'
        f'<p class="empty"{not_here}>{escape(table.empty)}</p>\n'
        f'<div class="scroll" role="region" aria-labelledby="{name}-title" tabindex="0"{here}><table>\n'
    )
    heads = "".join(
        f'<th scope="col"{_class(table, column)}>{escape(column)}</th>' for column in table.columns
    )
    yield f"<thead><tr>{heads}</tr></thead>\n<tbody>\n"
    for cells in table.rows:
        yield "<tr>"
        for place, (column, cell) in enumerate(zip(table.columns, cells, strict=True)):
            tag, scope = ("td", "") if place else ("th", ' scope="row"')
            yield f"<{tag}{scope}{_class(table, column, cell)}>{escape(cell[0])}</{tag}>"
        yield "</tr>\n"
    yield "</tbody>\n</table></div>\n</section>\n"


def _class(table: Table, column: str, cell: Cell = ("", "")) -> str:
    words = [*(["number"] if column in table.numeric else []), *([cell[1]] if cell[1] else [])]
    return f' class="{" ".join(words)}"' if words else ""
