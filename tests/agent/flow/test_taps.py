"""Taps: a bounded sample of the events that pass."""

from __future__ import annotations

from producer.agent import EventBatch
from producer.agent.flow.taps import MOST_BODY, MOST_HEADER, MOST_HEADERS, Tap, Viewer
from producer.testing import ManualClock


def bodies(viewer: Viewer) -> tuple[list[bytes], int]:
    seen, passed = viewer.take()
    return [each.body for each in seen], passed


def test_a_viewer_gets_its_rate_evenly_of_each_batch_and_the_number_of_all() -> None:
    """A viewer gets so many events a second as it asked for, evenly from a batch, and the number of all events."""
    clock, tap = ManualClock(), Tap()
    viewer = Viewer(4, clock)
    with tap.watched(viewer):
        tap.show(EventBatch.of_bodies([b"%d" % number for number in range(8)]))
        assert bodies(viewer) == ([b"0", b"2", b"4", b"6"], 8)
        tap.show(EventBatch.of_lines(b"a\n"))
        assert bodies(viewer) == ([], 1)
        clock.advance(0.5)
        tap.show(EventBatch.of_lines(b"a\nb\n"), EventBatch.of_lines(b"c\n"))
        assert bodies(viewer) == ([b"a", b"b"], 3)
        clock.advance(60)  # no more than one second's events are saved up
        tap.show(EventBatch.of_lines(b"x\n" * 9))
        assert bodies(viewer) == ([b"x"] * 4, 9)
    tap.show(EventBatch.of_lines(b"after\n"))
    assert bodies(viewer) == ([], 0)
    assert tap.viewers == ()


def test_what_a_viewer_holds_is_bounded() -> None:
    """Long bodies and headers are cut, further headers left out; unread old events are dropped."""
    clock = ManualClock()
    viewer = Viewer(100, clock)
    headers = {f"h{number}": "v" * 9999 for number in range(99)}
    viewer.offer(EventBatch.of_bodies([b"b" * 99_999], headers))
    ((first,), _) = viewer.take()
    assert (len(first.body), first.size) == (MOST_BODY, 99_999)
    assert len(first.headers) == MOST_HEADERS
    assert {*map(len, first.headers.values())} == {MOST_HEADER}
    for second in range(5):
        clock.advance(1)
        viewer.offer(EventBatch.of_bodies([b"%d" % second] * 100))
    seen, passed = viewer.take()
    assert [each.body for each in seen] == [b"3"] * 100 + [b"4"] * 100
    assert passed == 500
