"""``encode_events``: events with fields as records, natively and purely."""

import importlib
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as some

from producer.model.records import LogItem
from producer.wire.log_group import encode_log
from producer.wire.text_column import TextColumn
from tests.wire.twins import TWINS

Encode = Callable[..., list[tuple[bytes, int]]]
MANY = 1 << 30
NOW = 1_700_000_000


@pytest.fixture(scope="module", params=TWINS)
def encode(request: pytest.FixtureRequest) -> Encode:
    name = {"pure": "event_records", "native": "_event_records"}[request.param]
    return importlib.import_module(f"producer.wire.{name}").encode_events  # type: ignore[no-any-return]


def field(name: str, *values: str | None) -> tuple[bytes, TextColumn]:
    return name.encode(), TextColumn.of(values)


def pieces(
    encode: Encode,
    bodies: Sequence[bytes],
    fields: Sequence[tuple[bytes, TextColumn]] = (),
    seconds: Sequence[int] = (NOW,),
    nanos: Sequence[int] = (0,),
    most: tuple[int, int] = (MANY, MANY),
) -> list[tuple[bytes, int]]:
    ends = array("Q", accumulate(map(len, bodies))).tobytes()
    times = array("Q", seconds).tobytes(), array("I", nanos).tobytes()
    return encode(b"".join(bodies), ends, len(bodies), b"content", fields, *times, *most)


_TEXT = some.one_of(
    some.none(), some.text(some.characters(exclude_categories=["Cs"]), max_size=40), some.just("x" * 200)
)
_ROWS = some.lists(
    some.tuples(
        some.one_of(some.binary(max_size=150), some.text().map(str.encode)),
        some.tuples(_TEXT, _TEXT),
        some.integers(0, 2**32 - 1),
        some.sampled_from([0, 1, 999_999_999]),
    ),
    min_size=1,
    max_size=6,
)


@given(_ROWS, some.booleans(), some.booleans())
def test_a_record_is_that_of_send(
    encode: Encode, rows: list[tuple[bytes, tuple[str | None, ...], int, int]], one_time: bool, one_value: bool
) -> None:
    """A record equals that of ``send`` for body and fields; empty values become fields, absent ones do not."""
    bodies, values, seconds, nanos = (list(each) for each in zip(*rows, strict=True))
    if one_time:
        seconds, nanos = seconds[:1] * len(rows), nanos[:1] * len(rows)
    if one_value:
        values = [(values[0][0], each[1]) for each in values]
    firsts, seconds_of_all = [each[0] for each in values], list(zip(values, seconds, nanos, strict=True))
    expected = [
        encode_log(LogItem({"content": body.decode(errors="backslashreplace"), "a": a, "ß": b}, second, below), 0)
        for body, ((a, b), second, below) in zip(bodies, seconds_of_all, strict=True)
    ]
    fields = [field("a", *(firsts[:1] if one_value else firsts)), field("ß", *(each[1] for each in values))]
    times = (seconds[:1], nanos[:1]) if one_time else (seconds, nanos)
    assert pieces(encode, bodies, fields, *times) == [(b"".join(expected), len(rows))]


@pytest.mark.parametrize("block", [b"a\n\r\nb\r\r\n\xff\n", b"\n", b"one\n"])
def test_without_ends_lines_are_the_events_without_lf_or_cr_lf(encode: Encode, block: bytes) -> None:
    """Without ends, lines are the events, without LF or CR LF."""
    bodies = [line.removesuffix(b"\r") for line in block.split(b"\n")[:-1]]
    column = field("n", *map(str, range(len(bodies))))
    times = array("Q", [NOW]).tobytes(), array("I", [0]).tobytes()
    assert encode(block, b"", len(bodies), b"content", [column], *times, MANY, MANY) == pieces(encode, bodies, [column])


@pytest.mark.parametrize("size", [0, 100, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_lengths_of_any_width_are_encoded_as_send_does(encode: Encode, size: int) -> None:
    """Lengths of any width are encoded as ``send`` does."""
    text = "x" * size
    expected = encode_log(LogItem({"content": text, "f": text}, NOW, 0), 0)
    assert pieces(encode, [text.encode()], [field("f", text)]) == [(expected, 1)]


def test_a_piece_has_as_many_records_as_fit_in_bytes_and_number_at_least_one(encode: Encode) -> None:
    """A piece has as many records as fit in bytes and number, at least one."""
    bodies, column = [b"abc", b"defg", b"h", b"", b"i" * 1000, b"j"], field("n", "0", None, "22", "", "4", "5")
    single = [pieces(encode, [body])[0][0] for body in bodies]
    whole = b"".join(single)
    for most in (0, 1, len(single[0]), len(single[0]) + len(single[1]), len(whole) - 1, len(whole)):
        found = pieces(encode, bodies, most=(most, MANY))
        assert b"".join(records for records, _ in found) == whole
        assert all(len(records) <= most or logs == 1 for records, logs in found)
        firsts = [single[at] for at in accumulate(logs for _, logs in found[:-1])]
        more = [len(records) + len(first) for (records, _), first in zip(found, firsts, strict=False)]
        assert all(size > most for size in more), "the next one would have fitted"
    assert [logs for _, logs in pieces(encode, bodies, [column], most=(MANY, 4))] == [4, 2]


def test_no_events_yield_no_pieces(encode: Encode) -> None:
    """No events yield no pieces."""
    assert pieces(encode, [], [field("n", "1")]) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"count": 3}, "3"),
        ({"ends": array("Q", [2, 1]).tobytes()}, "bodies"),
        ({"ends": array("Q", [1, 4]).tobytes()}, "bodies"),
        ({"ends": b""}, "2"),
        ({"fields": [(b"f", TextColumn(array("I", [1, 2]).tobytes(), b"ab"))]}, "values of 3 bytes are not 2"),
        ({"fields": [(b"f", TextColumn(array("I", [1, 1, 1]).tobytes(), b"abc"))]}, "3 values for 2 events"),
        ({"seconds": array("Q", [1, 2, 3]).tobytes()}, "3 values for 2 events"),
        ({"nanos": b""}, "0 values for 2 events"),
    ],
)
def test_parts_that_do_not_fit_together_are_an_error(encode: Encode, arguments: dict[str, object], words: str) -> None:
    """Arguments that contradict each other are an error, and nothing is read outside."""
    known = {
        "block": b"abc",
        "ends": array("Q", [1, 3]).tobytes(),
        "count": 2,
        "key": b"content",
        "fields": [],
        "seconds": array("Q", [NOW]).tobytes(),
        "nanos": array("I", [0]).tobytes(),
    }
    with pytest.raises(ValueError, match=words):
        encode(*(known | arguments).values(), MANY, MANY)
