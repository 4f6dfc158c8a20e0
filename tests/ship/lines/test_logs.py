"""Each multi-line log is read once and whole, by the documented rules, however a file is divided."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.ship.errors import InputError
from producer.ship.figures import Figures
from producer.ship.lines import line as lines
from producer.ship.lines import logs
from producer.ship.lines.columns import FOUND_FIELDS, BlockColumns
from producer.ship.lines.line import Block, Line
from producer.ship.lines.log_start import start_pattern
from producer.ship.lines.logs import LogBlock, logs_of
from producer.wire.log_start import StartPattern, last_start
from producer.wire.splitters import split_syslog
from tests.runaway import ENDLESS, RUNAWAY

_START = start_pattern(r"\d")
_CONTENT = st.lists(
    st.sampled_from([b"\n", b"\n", b"\r\n", b"\r", b"1 a", b"2", b"\tat b", b"\xff", "é".encode(), b"x1"]), max_size=40
).map(b"".join)


def read(
    content: bytes,
    start: int = 0,
    end: int | None = None,
    *,
    longest: int = 1000,
    begins_log: bool = False,
    pattern: StartPattern = _START,
) -> list[Line]:
    file = io.BytesIO(content)
    found = logs_of(file, start, end, limit=None, max_log_bytes=longest, pattern=pattern, begins_log=begins_log)
    return single_logs(found)


def single_logs(found: Iterable[Block | Line]) -> list[Line]:
    return [log for each in found for log in (each.lines() if isinstance(each, Block) else [each])]


def simple_logs(content: bytes) -> list[Line]:
    """Split logs by the documented rules, line by line."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    for line in content.split(b"\n"):
        if not found or _START.match(line[: logs.SEEN_BYTES]):
            found.append((offset, line))
        else:
            found[-1] = (found[-1][0], found[-1][1] + b"\n" + line)
        offset += len(line) + 1
    *ended, (last_offset, last) = found
    simple = [Line(start, 0, text.removesuffix(b"\r")) for start, text in ended]
    if last.endswith(b"\n"):
        last = last[:-1].removesuffix(b"\r")
    elif b"\n" not in last and not last and content:
        return simple  # The empty rest after the last line end is not a line.
    return [*simple, Line(last_offset, 0, last)] if content else simple


def joined(pieces: Iterable[Line]) -> list[Line]:
    """Join the pieces of logs."""
    whole: list[Line] = []
    for piece in pieces:
        if piece.part > 1:
            assert piece.offset == whole[-1].offset
            whole[-1] = Line(piece.offset, 0, whole[-1].data + piece.data)
        else:
            whole.append(piece._replace(part=0))
    return whole


@pytest.fixture(params=[1, 3, 1 << 20], ids=["one byte", "three bytes", "a megabyte"])
def read_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(lines, "READ_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", [], id="an empty file has no log"),
        pytest.param(b"1 a\n\tat\n2 b\n", [b"1 a\n\tat", b"2 b"], id="lines that do not match go on with the log"),
        pytest.param(b"1 a\r\n\tat\r\n2 b\r\n", [b"1 a\r\n\tat", b"2 b"], id="line ends within a log stay"),
        pytest.param(b"head\nmore\n1 a\n", [b"head\nmore", b"1 a"], id="what is before the first start is a log"),
        pytest.param(b"1 a\n\n\n2 b\n", [b"1 a\n\n", b"2 b"], id="empty lines are lines of a log"),
        pytest.param(b"1 a\n\tat", [b"1 a\n\tat"], id="a last line without an end"),
        pytest.param(b"\n1 a\n", [b"", b"1 a"], id="an empty line at the beginning"),
        pytest.param(b"none\nof\nthem", [b"none\nof\nthem"], id="a file without a start line is one log"),
    ],
)
@pytest.mark.usefixtures("read_bytes")
def test_log_rule(content: bytes, expected: list[bytes]) -> None:
    """Each documented rule holds, at whatever offset the file is divided."""
    assert [log.data for log in read(content)] == expected


@given(content=_CONTENT, cuts=st.lists(st.integers(0, 120), max_size=6), chunk=st.integers(1, 50))
@example(content=b"1\n\n\n2", cuts=[1, 2, 3], chunk=1)
@example(content=b"x\nx\n1\nx", cuts=[1, 2, 3, 4, 5], chunk=2)
def test_adjacent_ranges_share_every_log_out_exactly_once(content: bytes, cuts: list[int], chunk: int) -> None:
    """For any bytes, cuts and reads, the ranges together yield the logs of a simple split."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", chunk)
        edges = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(content)), len(content)]
        found = [log for start, end in itertools.pairwise(edges) for log in read(content, start, end)]
    assert found == simple_logs(content)


@given(
    content=_CONTENT,
    longest=st.integers(4, 12),
    cuts=st.lists(st.integers(0, 120), max_size=3),
    chunk=st.integers(1, 9),
)
def test_pieces_of_a_long_log_are_the_log(content: bytes, longest: int, cuts: list[int], chunk: int) -> None:
    """However a file is read, a long log has the same pieces within the limit, which join to the log."""
    edges = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(content)), len(content)]
    expected = read(content, longest=longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", chunk)
        found = [log for start, end in itertools.pairwise(edges) for log in read(content, start, end, longest=longest)]
    assert found == expected
    assert all(len(log.data) <= longest for log in found)
    assert joined(found) == simple_logs(content)
    assert all(
        (log.part == 0) == (len(whole.data) <= longest)
        for whole in joined(found)
        for log in found
        if log.offset == whole.offset
    )


@pytest.mark.usefixtures("read_bytes")
def test_pattern_sees_the_beginning_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern sees only the start of a line: later matches do not count."""
    monkeypatch.setattr(logs, "SEEN_BYTES", 8)
    late = start_pattern(r".*END$")
    content = b"a\nx END\r\nxxxxxxxx END\nxxxxxEND more\nEND"
    assert [log.offset for log in read(content, pattern=late)] == [0, 2, 22, 36]


def test_range_that_follows_a_settled_log_begins_one() -> None:
    """Bytes added to a log that was shipped are a log of their own, whatever their first line is."""
    content = b"1 a\n\tat\n\tmore\n2 b\n"
    assert [log.data for log in read(content, 8, begins_log=True)] == [b"\tmore", b"2 b"]
    assert [log.data for log in read(content, 8)] == [b"2 b"]


def test_block_of_logs_is_cut_between_logs() -> None:
    """A block of logs is divided between logs, and counts logs and their bytes."""
    block, _last = logs_of(io.BytesIO(b"1\n a\r\n2\n3\n4\n"), 0, None, limit=None, max_log_bytes=99, pattern=_START)
    assert isinstance(block, LogBlock)
    assert (block.count, block.text_bytes, block.has_longer(3), block.has_longer(4)) == (3, 6, True, False)
    halves = block.halves()
    assert halves is not None
    assert single_logs(halves) == list(block.lines())
    assert halves[0].halves() is None


@pytest.mark.parametrize(
    ("parser", "pattern", "expected"),
    [
        ("text", None, [{}, {}]),
        ("syslog", None, [{"message": "x\n\tat a"}, {"message": "y"}]),
        ("regex", r"(?P<n>\d)(?P<rest>.*)", [{"n": "1", "rest": " Oct 11 22:14:15 h x\n\tat a"}, None]),
    ],
)
def test_parser_is_given_the_whole_log(parser: str, pattern: str | None, expected: list[dict[str, str]]) -> None:
    """The parser gets the whole log; a stack trace is part of the message, and the offset is that of the log."""
    head = "1 " if parser == "regex" else ""
    content = f"{head}Oct 11 22:14:15 h x\n\tat a\nOct 12 22:14:15 h y\n".encode()
    block, _last = logs_of(
        io.BytesIO(content + b"1 end\n"), 0, None, limit=None, max_log_bytes=99, pattern=start_pattern(r"\d|[A-Z]")
    )
    assert isinstance(block, LogBlock)
    batch = BlockColumns(parser, pattern, offset=True).batch(block, Figures())
    # Without native parsers, the found fields are a map.
    assert (FOUND_FIELDS in batch.schema.names) == (parser == "syslog" and split_syslog is None)
    rows = [row | dict(row.pop(FOUND_FIELDS, None) or []) for row in batch.to_pylist()]
    assert [row["__file_offset__"] for row in rows] == [0, content.index(b"Oct 12")]
    for row, fields in zip(rows, expected, strict=True):
        assert fields is None or row.items() >= fields.items()


@pytest.mark.parametrize(("pattern", "said"), [("(", "is not a regular expression"), ("a*", "matches an empty line")])
def test_bad_pattern_is_refused(pattern: str, said: str) -> None:
    """An invalid pattern is refused with the reason."""
    with pytest.raises(InputError, match=said):
        start_pattern(pattern)


def test_line_at_which_the_pattern_runs_away_begins_no_log(quick_limit: None, caplog: pytest.LogCaptureFixture) -> None:
    """A line whose search exceeds the limit begins no log, and a warning is logged."""
    content = f"aa\n{ENDLESS}\naa\n".encode()
    start = start_pattern(RUNAWAY)
    (block, last) = logs_of(io.BytesIO(content), 0, None, limit=None, max_log_bytes=999, pattern=start)
    assert [line.data for each in (block, last) for line in each.lines()] == [content[:-4], b"aa"]
    assert last_start(content, start, at_line=True) == len(content) - 3
    assert caplog.messages[0].startswith("multiline start: a search with")


@given(content=_CONTENT, size=st.integers(0, 200), at_line=st.booleans())
@example(content=b"1\n2\n3", size=200, at_line=True)
def test_last_start_line_of_a_file_that_grows_is_found(content: bytes, size: int, at_line: bool) -> None:
    """The last start line is found from the end backwards; an unfinished line may still change."""
    data = content[:size]
    rest = data if at_line else data.partition(b"\n")[2]
    ended = rest[: rest.rfind(b"\n") + 1]
    starts = [match.start() + len(data) - len(rest) for match in re.finditer(rb"(?m)^\d", ended)]
    starts = [start for start in starts if start]
    assert last_start(data, _START, at_line=at_line) == (starts[-1] if starts else 0)
