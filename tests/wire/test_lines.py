"""``encode_lines``: the lines of a block as records, natively and purely."""

import importlib
import mmap
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from producer.model.records import LogItem
from producer.wire import lines
from producer.wire.log_group import encode_log
from tests.wire.twins import TWINS, native

Encode = Callable[..., lines.EncodedLines]
MANY = 1 << 30
NOW = 1_700_000_000


@pytest.fixture(params=TWINS)
def encode(request: pytest.FixtureRequest) -> Encode:
    name = {"pure": "lines", "native": "_lines"}[request.param]
    return importlib.import_module(f"producer.wire.{name}").encode_lines  # type: ignore[no-any-return]


def records_of(texts: list[str], key: str = "content", nanos: int = 0) -> bytes:
    items = [LogItem({key: text}, time=NOW, time_ns=nanos) for text in texts]
    return b"".join(encode_log(item, 0) for item in items)


def whole(
    encode: Encode, block: Any, *, key: str = "content", nanos: int = 0, final: bool = True
) -> lines.EncodedLines:
    return encode(block, 0, key.encode(), NOW, nanos, MANY, MANY, final)


@pytest.mark.parametrize(
    ("block", "texts"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"\n", [""]),
        (b"\n\r\n\n", ["", "", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\rc\n\r", ["a\r", "b\rc", "\r"]),
        (b"\r", ["\r"]),
        ("ä€😀\n".encode(), ["ä€😀"]),
        (b"a\x00b\n", ["a\x00b"]),
    ],
)
def test_a_line_ends_as_a_person_expects(encode: Encode, block: bytes, texts: list[str]) -> None:
    """LF and CR LF end a line, a lone CR does not; an empty line, and the rest after the last end, are lines."""
    assert whole(encode, block) == (records_of(texts), len(texts), len(block))


@pytest.mark.parametrize(
    ("block", "texts", "end"), [(b"a\nbc", ["a"], 2), (b"abc", [], 0), (b"a\r\n\r", ["a"], 3), (b"", [], 0)]
)
def test_a_line_without_an_end_is_handed_back(encode: Encode, block: bytes, texts: list[str], end: int) -> None:
    """Without ``final``, an unfinished line is left, and its start is returned."""
    assert whole(encode, block, final=False) == (records_of(texts), len(texts), end)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\xff", r"\xff"),
        (b"a\xe2\x82b", r"a\xe2\x82b"),
        (b"\xc0\x80", r"\xc0\x80"),  # An overlong form.
        (b"\xe0\x9f\xbf", r"\xe0\x9f\xbf"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),  # A lone surrogate.
        (b"\xf0\x8f\xbf\xbf", r"\xf0\x8f\xbf\xbf"),
        (b"\xf4\x90\x80\x80", r"\xf4\x90\x80\x80"),  # Beyond the last code point.
        (b"\xf5\x80\x80\x80", r"\xf5\x80\x80\x80"),
        (b"\xf0\x9f\x98", r"\xf0\x9f\x98"),
        ("ä".encode() + b"\x80" + "€".encode(), "ä\\x80€"),
    ],
)
def test_each_byte_that_is_not_utf_8_is_shown_as_xnn(encode: Encode, line: bytes, text: str) -> None:
    """Each byte that is not UTF-8 is shown as ``\\xNN``."""
    assert whole(encode, line + b"\n" + line).records == records_of([text, text])


@pytest.mark.parametrize("size", [0, 1, 100, 116, 117, 127, 128, 16_300, 16_383, 16_384, 2_097_151, 2_097_152])
@pytest.mark.parametrize("nanos", [0, 999_999_999])
def test_lengths_of_any_width_are_encoded_as_send_does(encode: Encode, size: int, nanos: int) -> None:
    """Lengths of any width are encoded as ``send`` does."""
    block = b"x" * size + b"\n" + b"y" * size + b"\n"
    expected = records_of(["x" * size, "y" * size], nanos=nanos)
    assert whole(encode, block, nanos=nanos).records == expected
    assert whole(encode, block, nanos=nanos, key="ß" * 100).records == records_of(
        ["x" * size, "y" * size], "ß" * 100, nanos
    )


def test_a_piece_has_as_many_lines_as_fit_in_bytes_and_number_at_least_one(encode: Encode) -> None:
    """A piece has as many lines as fit in bytes and number, at least one, and the next one continues."""
    record = len(records_of(["abc"]))
    block = b"abc\n" * 5
    assert encode(block, 0, b"content", NOW, 0, 3 * record, MANY, True)[1:] == (3, 12)
    assert encode(block, 0, b"content", NOW, 0, 3 * record - 1, MANY, True)[1:] == (2, 8)
    assert encode(block, 12, b"content", NOW, 0, 3 * record, MANY, True)[1:] == (2, 20)
    assert encode(block, 0, b"content", NOW, 0, MANY, 4, True)[1:] == (4, 16)
    assert encode(block, 20, b"content", NOW, 0, MANY, 4, True) == (b"", 0, 20)
    for most in (0, 1, record - 1):
        assert encode(block, 4, b"content", NOW, 0, most, MANY, True) == (records_of(["abc"]), 1, 8)
    large = b"x" * 10_000 + b"\n" + block
    assert encode(large, 0, b"content", NOW, 0, record, MANY, True) == (records_of(["x" * 10_000]), 1, 10_001)


def test_a_block_is_any_memory_of_bytes(encode: Encode) -> None:
    """A block may be bytes, a bytearray, a part of one, or a mapped file."""
    block = b"one\ntwo\r\nthree"
    expected = whole(encode, block)
    mapped = mmap.mmap(-1, len(block))
    mapped[:] = block
    for memory in (bytearray(block), memoryview(b"--" + block)[2:], mapped):
        assert whole(encode, memory) == expected
    mapped.close()


def test_text_and_memory_with_gaps_are_refused(encode: Encode) -> None:
    """Text, and memory with gaps, are refused."""
    with pytest.raises(TypeError):
        whole(encode, "text")
    with pytest.raises((BufferError, TypeError)):
        whole(encode, memoryview(b"abcdef")[::2])


_BYTES = some.binary(max_size=40) | some.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass"))
_BLOCKS = some.lists(_BYTES | some.sampled_from([b"\n", b"\r\n", b"\r", b"x" * 130])).map(b"".join)


@native
@given(
    block=_BLOCKS,
    start=some.integers(0, 10),
    key=some.text(some.characters(exclude_categories=["Cs"]), max_size=130).map(str.encode),
    seconds=some.integers(0, 2**32 - 1),
    nanos=some.integers(0, 999_999_999),
    most_bytes=some.integers(0, 500),
    most_lines=some.integers(1, 5),
    final=some.booleans(),
)
def test_the_twins_agree(block: bytes, start: int, **rest: Any) -> None:
    """Native and pure implementations yield the same bytes, wherever a piece ends."""
    from producer.wire import _lines

    start = min(start, len(block))
    assert _lines.encode_lines(block, start, **rest) == lines.encode_lines(block, start, **rest)


@native
@pytest.mark.parametrize("line", [b"\n", b"ab\n", b"\xff\xfe\n", b"x" * 300 + b"\n"])
@pytest.mark.parametrize("most_bytes", [5000, 70_000, 1 << 20, MANY])
def test_the_twins_agree_on_pieces_of_any_size(line: bytes, most_bytes: int) -> None:
    """They also agree for records much larger than their lines, and larger than a piece."""
    from producer.wire import _lines

    block = (line * 20_000) + b"y" * 90_000 + b"\n" + line * 10
    start = 0
    while start < len(block):
        piece = _lines.encode_lines(block, start, b"content", NOW, 5, most_bytes, MANY, True)
        assert piece == lines.encode_lines(block, start, b"content", NOW, 5, most_bytes, MANY, True)
        assert piece.end > start
        start = piece.end


@native
def test_a_piece_of_lines_takes_no_new_memory_each_time() -> None:
    """The memory of a piece is reused for the next one."""
    from producer.wire import _lines

    resource = pytest.importorskip("resource")
    block = b"10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] GET /index.html 200 2326 and some more of it\n" * 12_000
    for _ in range(3):
        _lines.encode_lines(block, 0, b"content", NOW, 0, MANY, MANY, True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        _lines.encode_lines(block, 0, b"content", NOW, 0, MANY, MANY, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 20 * 50


@native
def test_the_compiled_twin_runs_beside_others() -> None:
    """Native code releases the GIL while it encodes."""
    from producer.wire import _lines

    block = b"x" * 100 + b"\n"
    block *= 400_000
    done, turns = threading.Event(), 0
    thread = threading.Thread(target=lambda: (whole(_lines.encode_lines, block), done.set()))
    thread.start()
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 100
