"""The header ``traceparent``, as W3C Trace Context has it."""

from __future__ import annotations

import pytest

from interlingua.schemas.trace import Trace, read_traceparent, trace_id_of

ID, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("flags", ["00", "01", "03"])
def test_a_valid_header(flags: str) -> None:
    parent = read_traceparent(f"00-{ID}-{SPAN}-{flags}")
    assert parent == (int(ID, 16), int(SPAN, 16), int(flags, 16))


def test_a_later_version_may_have_more_fields() -> None:
    assert read_traceparent(f"cc-{ID}-{SPAN}-01-what-the-future-holds") is not None
    assert read_traceparent(f"cc-{ID}-{SPAN}-01") is not None


@pytest.mark.parametrize(
    "header",
    [
        f"00-{ID}-{SPAN}-01-more",
        f"ff-{ID}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{ID}-{'0' * 16}-01",
        f"00-{ID.upper()}-{SPAN}-01",
        f"00-{ID}-{SPAN}",
        f"cc-{ID}-{SPAN}-01.",
        "00-1",
        "",
    ],
)
def test_an_invalid_header_is_as_if_it_were_absent(header: str) -> None:
    assert read_traceparent(header) is None
    assert trace_id_of(header) == ""


def test_a_part_goes_on_below_its_span() -> None:
    parent = read_traceparent(f"00-{ID}-{SPAN}-03")
    assert parent is not None
    trace = Trace.below(parent, "a=b")
    part = trace.part()
    assert trace_id_of(part.traceparent) == ID and part.traceparent.endswith("-03")
    assert (part.parent_id, part.tracestate) == (trace.span_id, "a=b")
    assert part.span_id != trace.span_id
