"""Where messages end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.agent.sources.syslog_frames import Frames, FramingError


def _cut(frames, data, sizes):
    """All messages of data that comes in pieces, and whether each is whole."""
    found, at = [], 0
    for size in [*sizes, len(data)]:
        piece, at = data[at : at + size], at + size
        if piece:
            messages = frames.feed(piece)
            found += [(message, number not in frames.cut) for number, message in enumerate(messages)]
    return found


_SIZES = st.lists(st.integers(1, 12), max_size=30)


@given(st.lists(st.binary(max_size=30).map(lambda text: b"<" + text.replace(b"\n", b"")), min_size=1), _SIZES)
def test_lines_are_messages_however_they_come(messages, sizes):
    r"""Messages that end with \n are found, whatever pieces they come in; of longer ones the first bytes."""
    found = _cut(Frames(16), b"".join(message + b"\n" for message in messages), sizes)
    assert found == [(message[:16], len(message) <= 16) for message in messages]


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1), _SIZES)
def test_messages_with_their_sizes_are_found_however_they_come(messages, sizes):
    """Messages with their sizes may hold line ends; of longer ones the first bytes are kept, the next one is right."""
    found = _cut(Frames(16), b"".join(b"%d %s" % (len(message), message) for message in messages), sizes)
    assert found == [(message[:16], len(message) <= 16) for message in messages]


@pytest.mark.parametrize("sent", [b"5 <13>a6<13>bc", b"1x", b"9999999999 ", b"3 abc0 ", b"12345678901"])
def test_what_is_no_size_ends_the_connection(sent):
    """Where a size must stand and something else does, nobody knows where messages end: that is an error."""
    frames = Frames(16)
    with pytest.raises(FramingError, match="no size before a message"):  # noqa: PT012
        frames.feed(sent)
        frames.feed(b"x")


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        (b"<13>a\n<13>b", [b"<13>b"]),
        (b"<13>a\n", []),
        (b"5 <13>a9 <13>", [b"<13>"]),
        (b"5 <13>a", []),
        (b"5", []),
        (b"", []),
    ],
)
def test_half_a_message_at_the_end_is_kept(sent, left):
    """What had come of a message when the connection ended is a message that is not whole."""
    frames = Frames(16)
    frames.feed(sent)
    assert (frames.end(), frames.cut) == (left, [0])


def test_a_message_without_an_end_needs_no_memory():
    """However long a message goes on, no more than the allowed size is kept of it."""
    for begin in (b"<13>", b"900000000 <13>"):
        frames = Frames(1024)
        frames.feed(begin)
        for _ in range(100):
            frames.feed(b"x" * 1000)
        assert len(frames._rest) <= 2048
