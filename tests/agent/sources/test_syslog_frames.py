"""Framing of syslog messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.agent.sources import syslog_frames
from producer.agent.sources.syslog_frames import Frames, FramingError


def _cut(frames, data, sizes):
    """Split data that arrives in pieces; return all messages, and whether each is complete."""
    found, at = [], 0
    for size in [*sizes, len(data)]:
        piece, at = data[at : at + size], at + size
        if piece:
            messages = frames.feed(piece)
            found += [(message, number not in frames.cut) for number, message in enumerate(messages)]
    return found


_SIZES = st.lists(st.integers(1, 12), max_size=30)


_ENDS = st.sampled_from([b"\n", b"\0"])


@given(
    st.lists(st.binary(max_size=30).map(lambda text: b"<" + text.replace(b"\n", b"").replace(b"\0", b"")), min_size=1),
    _ENDS,
    _SIZES,
)
def test_messages_that_end_with_lf_or_nul_are_found_in_pieces_of_any_size(messages, end, sizes):
    r"""Messages that end with \n or NUL are found in pieces of any size; longer ones are truncated."""
    found = _cut(Frames(16), b"".join(message + end for message in messages), sizes)
    assert found == [(message[:16], len(message) <= 16) for message in messages]


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1), st.sampled_from([b"", b"\n", b"\r\n", b"\0"]), _SIZES)
def test_counted_messages_are_found_in_pieces_of_any_size(messages, end, sizes):
    """Counted messages are found in pieces of any size, with line ends inside and after; longer ones are truncated."""
    found = _cut(Frames(16), b"".join(b"%d %s%s" % (len(message), message, end) for message in messages), sizes)
    assert found == [(message[:16], len(message) <= 16) for message in messages]


_LENGTHS = (2, 16, 17, 1, 40, 15, 33, 16, 5)


@pytest.mark.parametrize("size", range(1, 60))
def test_lines_of_each_length_are_found_in_pieces_of_each_size(size):
    """Lines of each length are found in pieces of each size, at all boundaries."""
    messages = [b"<" + bytes([number]) * (length - 1) for number, length in enumerate(_LENGTHS, 97)]
    data = b"".join(message + b"\n" for message in messages)
    assert _cut(Frames(16), data, [size] * len(data)) == [(message[:16], len(message) <= 16) for message in messages]


@pytest.mark.parametrize("size", range(1, 60))
def test_sized_messages_of_each_length_are_found_in_pieces_of_each_size(size):
    """Counted messages of each length are found in pieces of each size, at all boundaries."""
    messages = [b"\n" + bytes([number]) * (length - 1) for number, length in enumerate(_LENGTHS, 97)]
    data = b"".join(b"%d %s" % (len(message), message) for message in messages)
    assert _cut(Frames(16), data, [size] * len(data)) == [(message[:16], len(message) <= 16) for message in messages]


@pytest.mark.parametrize("first", [b"1", b"9"])
def test_the_first_byte_tells_that_sizes_come(first):
    """A first byte from 1 to 9 selects octet counting."""
    frames = Frames(16)
    text = b"x" * int(first)
    assert frames.feed(first + b" " + text) == [text]


@pytest.mark.parametrize("line", [b"0 abc", b"<13>a", b"text", b" 5 a"])
def test_any_other_first_byte_tells_that_lines_come(line):
    """Any other first byte, including zero, selects lines."""
    assert Frames(16).feed(line + b"\n") == [line]


def test_a_size_may_have_nine_digits():
    """A size has at most nine digits before its space."""
    frames = Frames(4)
    assert frames.feed(b"123456789") == []
    assert frames.feed(b" abcdef") == [b"abcd"]
    assert frames.cut == [0]
    with pytest.raises(FramingError):
        Frames(4).feed(b"1234567890")


def test_a_message_that_is_already_too_long_is_returned_truncated_without_waiting_for_its_end():
    """A message that is already too long is returned truncated, without waiting for its end."""
    frames = Frames(16)
    assert (frames.feed(b"<a\n" + b"x" * 20), frames.cut) == ([b"<a", b"x" * 16], [1])
    assert frames.feed(b"x\n<b\n") == [b"<b"]


def test_the_indexes_of_truncated_messages_belong_to_the_last_result():
    """The indexes of truncated messages belong to the last result."""
    frames = Frames(4)
    assert (frames.feed(b"<abcdef\n<a\n"), frames.cut) == ([b"<abc", b"<a"], [0])
    assert (frames.feed(b"<b\n"), frames.cut) == ([b"<b"], [])


def test_a_large_message_in_small_pieces_is_not_searched_again_for_each_piece(monkeypatch):
    """A large message in small pieces is not searched again for each piece."""
    looks = []
    monkeypatch.setattr(syslog_frames, "_SIZE", _Looked(syslog_frames._SIZE, looks))
    frames = Frames(10_000)
    frames.feed(b"10000 ")
    for _ in range(99):
        assert frames.feed(b"x" * 100) == []
    assert frames.feed(b"x" * 100) == [b"x" * 10_000]
    assert len(looks) <= 3


class _Looked:
    def __init__(self, pattern, looks):
        self._pattern, self._looks = pattern, looks

    def match(self, *arguments):
        self._looks.append(arguments)
        return self._pattern.match(*arguments)


@pytest.mark.parametrize("sent", [b"5 <13>a6<13>bc", b"1x", b"9999999999 ", b"3 abc0 ", b"12345678901"])
def test_a_missing_size_raises_an_error_since_the_next_message_cannot_be_found(sent):
    """A missing size raises an error, since the next message cannot be found."""
    frames = Frames(16)
    with pytest.raises(FramingError, match="a message without a size before it"):  # noqa: PT012
        frames.feed(sent)
        frames.feed(b"x")


def test_messages_before_a_missing_size_are_returned_the_error_follows_with_the_next_bytes():
    """Messages before a missing size are returned; the error follows with the next bytes."""
    frames = Frames(16)
    assert frames.feed(b"5 <13>a6<13>bc") == [b"<13>a"]
    with pytest.raises(FramingError):
        frames.feed(b"d")


def test_a_zero_is_refused_as_a_size_at_once():
    """A zero is refused as a size at once."""
    frames = Frames(16)
    assert frames.feed(b"3 abc") == [b"abc"]
    with pytest.raises(FramingError):
        frames.feed(b"0")


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
    """The rest of a message at the end of the connection is returned as truncated."""
    frames = Frames(16)
    frames.feed(sent)
    assert (frames.end(), frames.cut) == (left, [0])


def test_a_message_without_an_end_needs_no_memory():
    """An endless message takes no more memory than the limit."""
    for begin in (b"<13>", b"900000000 <13>"):
        frames = Frames(1024)
        frames.feed(begin)
        for _ in range(100):
            frames.feed(b"x" * 1000)
        assert len(frames._rest) <= 2048
