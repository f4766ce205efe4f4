"""Triton's trace settings, and which requests are sampled by them."""

from __future__ import annotations

import pytest

from interlingua.translator.tracing.settings import TraceBook


def sampled(book: TraceBook, model: str = "m", count: int = 12, caller: bool | None = None) -> list[int]:
    """The numbers of the requests that are sampled, from 1."""
    return [number for number in range(1, count + 1) if book.takes(model, caller)]


def test_settings_are_those_of_triton_in_this_mode() -> None:
    book = TraceBook(0.01, {"url": ("http://collector/v1/traces",)})
    shown = {
        "trace_level": ("TIMESTAMPS",),
        "trace_rate": ("100",),
        "trace_count": ("-1",),
        "trace_mode": ("opentelemetry",),
        "url": ("http://collector/v1/traces",),
    }
    assert book.settings() == book.settings("m") == shown
    book.change("m", {"trace_rate": ("3",), "log_frequency": ("5",), "trace_mode": ("triton",)})
    assert book.settings("m") == {**shown, "trace_rate": ("3",)}
    assert book.settings() == shown


def test_nothing_is_sampled_without_tracing_in_the_configuration() -> None:
    book = TraceBook()
    book.change("", {"trace_level": ("TIMESTAMPS",), "trace_rate": ("1",)})
    assert not sampled(book) and not sampled(book, caller=True)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (1.0, 12)])
def test_the_share_is_of_requests_whose_caller_does_not_decide(share: float, count: int) -> None:
    book = TraceBook(share)
    assert len(sampled(book)) == count
    assert len(sampled(book, caller=True)) == 12
    assert not sampled(book, caller=False)


def test_a_rate_samples_every_nth_request() -> None:
    book = TraceBook(0.0)
    book.change("", {"trace_rate": ("4",)})
    assert sampled(book) == [4, 8, 12]
    book.change("m", {"trace_rate": ("6",)})
    assert sampled(book) == [6, 12]
    book.change("m", {"trace_rate": ()})
    assert book.settings("m") == book.settings()
    book.change("", {"trace_rate": ("0",)})
    assert not sampled(book)
    book.change("", {"trace_rate": ()})
    assert book.settings()["trace_rate"] == ("0",)  # that of the share


def test_off_ends_traces_of_every_caller() -> None:
    book = TraceBook(1.0)
    book.change("m", {"trace_level": ("OFF",)})
    assert not sampled(book, caller=True)
    assert len(sampled(book, "other")) == 12
    book.change("m", {"trace_level": ()})
    assert len(sampled(book)) == 12


def test_a_count_is_what_is_left() -> None:
    book = TraceBook(1.0)
    book.change("", {"trace_count": ("5",)})
    assert sampled(book, count=3) == [1, 2, 3]
    assert book.settings()["trace_count"] == book.settings("m")["trace_count"] == ("2",)
    assert len(sampled(book, caller=True)) == 2
    assert book.settings()["trace_count"] == ("0",)
    book.change("m", {"trace_count": ("1",)})
    assert sampled(book) == [1] and not sampled(book, "other")
    book.change("", {"trace_count": ("-1",)})
    assert book.settings()["trace_count"] == ("-1",) and len(sampled(book, "other")) == 12


def test_processes_divide_a_count() -> None:
    books = [TraceBook(1.0) for _ in range(3)]
    for number, book in enumerate(books):
        book.divide(number, 3)
        book.change("", {"trace_count": ("8",)})
    assert [len(sampled(book)) for book in books] == [3, 3, 2]
    assert books[0].settings("", {"": 5})["trace_count"] == ("5",)
