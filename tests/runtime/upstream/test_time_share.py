"""The share of the event loop's time that learning takes."""

from __future__ import annotations

from interlingua.runtime.upstream.time_share import TimeShare


def test_work_has_its_share_and_leaves_a_debt() -> None:
    now = [0.0]
    share = TimeShare(0.1, 1.0, lambda: now[0])

    def work(secs: float) -> None:
        assert share.begin()
        now[0] += secs
        share.end()

    work(0.5)
    work(3.5)  # is not interrupted, and leaves a debt of 3 seconds less what passed meanwhile
    assert not share.begin()
    now[0] += 20
    assert not share.begin()
    now[0] += 20
    work(0.5)


def test_unused_time_is_not_saved() -> None:
    now = [0.0]
    share = TimeShare(0.1, 1.0, lambda: now[0])
    now[0] = 1000.0
    assert share.begin()
    now[0] += 2
    share.end()
    assert not share.begin()
