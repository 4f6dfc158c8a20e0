"""Batches of events in columns, with bodies in either form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.agent.events.batch import EventBatch, Position, batches_of
from producer.agent.events.event_format import UnreadableBatchError, read_batch, write_batch
from producer.model.errors import InvalidArgumentError
from producer.model.interfaces import Event

_BODY = st.binary(max_size=20)
_LINE = _BODY.map(lambda body: body.replace(b"\n", b"").rstrip(b"\r"))
_NAME = st.text(max_size=5) | st.just("~form") | st.just("~")
_HEADERS = st.dictionaries(_NAME, st.text(max_size=5), max_size=3)
_EVENTS = st.lists(st.tuples(_HEADERS, _BODY), max_size=8)


def test_lines_are_events_without_their_ends() -> None:
    r"""A body is a line without its ``\n`` or ``\r\n``; a lone ``\r`` and an empty line stay."""
    batch = EventBatch.of_lines(b"a\r\n\nb\rc\nlast")
    assert (batch.count, batch.bodies()) == (4, [b"a", b"", b"b\rc", b"last"])
    assert batch.lines() == b"a\r\n\nb\rc\nlast\n"


@given(_EVENTS)
def test_a_batch_of_single_events_gives_the_same_events_back(events: list[tuple[dict[str, str], bytes]]) -> None:
    """A batch of single events gives the same events back."""
    assert list(EventBatch.of_events(events).events()) == events


@given(_EVENTS, st.none() | st.builds(Position, st.text(), st.integers(0, 2**63), start=st.integers(0, 99)))
def test_bodies_headers_and_position_survive_a_channel_also_headers_with_names_like_the_formats_own(
    events: list[tuple[dict[str, str], bytes]], position: Position | None
) -> None:
    """Bodies, headers and position survive a channel, also headers with names like the format's own."""
    back = read_batch(write_batch(EventBatch.of_events(events, position)))
    assert (list(back.events()), back.count, back.position) == (events, len(events), position)


@given(st.lists(_LINE, max_size=8), st.data())
def test_selecting_keeps_bodies_and_columns_together(lines: list[bytes], data: st.DataObject) -> None:
    """Selecting keeps the same events with their headers, in both forms."""
    keep = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    wanted = [(str(n), line) for n, line in enumerate(lines) if keep[n]]
    numbers = [str(n) for n in range(len(lines))]
    for batch in (EventBatch.of_lines(b"".join(line + b"\n" for line in lines)), EventBatch.of_bodies(lines)):
        left = batch.with_column("n", numbers).select(keep)
        assert [(headers["n"], body) for headers, body in left.events()] == wanted


def test_a_body_that_ends_with_a_carriage_return_keeps_it() -> None:
    """A body keeps its final ``\r`` when other lines are removed."""
    assert EventBatch.of_lines(b"a\r\r\nb\r\nc\r\n").select([True, True, False]).bodies() == [b"a\r", b"b"]


@given(st.lists(_LINE, max_size=8))
def test_offsets_say_where_bodies_begin(lines: list[bytes]) -> None:
    """Each offset is the start of the event's body, in both forms."""
    for batch in (EventBatch.of_lines(b"".join(line + b"\n" for line in lines)), EventBatch.of_bodies(lines)):
        places = zip(batch.offsets(), batch.bodies(), strict=True)
        assert all(batch.block[start:].startswith(body) for start, body in places)


def test_lines_lie_in_a_channel_as_they_lay_in_the_file() -> None:
    """The event's body is the block itself, not a copy."""
    block = b"a\nb\n"
    event = write_batch(EventBatch.of_lines(block, {"host": "h"}, Position("f", 4)))
    assert event.body is block
    assert event.headers == {"host": "h", "~count": "2", "~form": "lines", "~position": "4 f", "~from": "0 "}


def test_the_example_of_the_format() -> None:
    """The example in the format's description is exact."""
    event = write_batch(EventBatch.of_events([({"n": "1"}, b"a"), ({}, b"bc")]))
    shown = (
        "01 00 00 00  01 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00"
        "01 00 00 00 6e  01 00 00 00  01 00 00 00 ff ff ff ff  31  61 62 63"
    )
    assert (event.headers, event.body) == ({"~form": "ends", "~count": "2"}, bytes.fromhex(shown))


def test_an_event_of_another_program_is_delivered_as_one_event_with_its_headers() -> None:
    """An event of another program is delivered as one event with its headers."""
    batch = read_batch(Event({"k": "v", "none": None}, b"body\n", 7))
    assert (list(batch.events()), batch.sequence) == ([({"k": "v"}, b"body\n")], 7)


def test_splitting_by_a_header_keeps_the_order() -> None:
    """Splitting keeps the order of each value's events, and separates events without the header."""
    batch = EventBatch.of_events([({"l": "x"}, b"1"), ({}, b"2"), ({"l": "x"}, b"3")])
    assert {value: part.bodies() for value, part in batch.split("l").items()} == {"x": [b"1", b"3"], None: [b"2"]}


def test_a_column_of_another_length_is_refused() -> None:
    """A column needs one value for each event."""
    with pytest.raises(InvalidArgumentError, match="1 values for 2 events"):
        EventBatch.of_lines(b"a\nb\n").with_column("n", ["1"])


@pytest.mark.parametrize(
    "values", [["a", None, ""], ["é", None, "x\ud800"], [None, None, None], ["", "", "b" * 70_000]]
)
def test_missing_empty_long_and_non_ascii_values_and_text_that_utf_8_cannot_encode_survive(
    values: list[str | None],
) -> None:
    """Missing, empty, long and non-ASCII values, and text that UTF-8 cannot encode, survive."""
    batch = EventBatch.of_bodies([b"1", b"2", b"3"], {}, {"h": values, "other": ["1", "2", None]})
    back = read_batch(write_batch(batch))
    assert (back.columns, back.bodies()) == ({"h": values, "other": ["1", "2", None]}, [b"1", b"2", b"3"])


@pytest.mark.parametrize("place", [0, 12, 20, 25, 29, 33])
def test_sizes_that_do_not_fit_together_are_damage(place: int) -> None:
    """A batch with a wrong size is unreadable, so that no header moves to another event."""
    event = write_batch(EventBatch.of_bodies([b"a", b"bc"], {}, {"n": ["1", None]}))
    body = bytearray(event.body)
    body[place] ^= 0x41
    with pytest.raises(UnreadableBatchError):
        read_batch(Event(event.headers, bytes(body), 1))


@given(st.lists(st.sampled_from([{}, {"a": "1"}, {"a": "2"}, {"b": "", "a": "1"}]), max_size=6))
def test_events_of_the_same_headers_share_them(headers: list[dict[str, str]]) -> None:
    """Runs of events with equal headers keep each event's own headers."""
    events = [(each, b"%d" % number) for number, each in enumerate(headers)]
    batches = list(batches_of(events))
    assert [event for batch in batches for event in batch.events()] == events
    assert all(batch.columns for batch in batches) == any(each != headers[0] for each in headers) or not headers


def test_events_with_ever_new_headers_take_memory_in_proportion() -> None:
    """Events with many different headers become several batches, so that memory grows linearly."""
    events = [({f"h{number}": "v", "same": "x"}, b"%d" % number) for number in range(3000)]
    batches = list(batches_of(events))
    assert [event for batch in batches for event in batch.events()] == events
    assert sum(len(batch.columns) * batch.count for batch in batches) < 3_000_000
    (one,) = batches_of([({str(name): "v" for name in range(300)}, b"")] * 2000)
    assert one.count == 2000


@pytest.mark.parametrize("form", ["lines", "bodies"])
def test_a_batch_exports_to_arrow_a_header_with_the_bodies_column_name_is_renamed(form: str) -> None:
    """A batch exports to Arrow; a header with the bodies' column name is renamed."""
    pyarrow = pytest.importorskip("pyarrow")
    batch = EventBatch.of_lines(b"a\nb\xff\n") if form == "lines" else EventBatch.of_bodies([b"a", b"b\xff"])
    batch = batch.with_shared({"host": "h", "body": "x"}).with_column("n", ["1", None])
    table = pyarrow.record_batch(batch)
    assert table.to_pydict() == {
        "body": [b"a", b"b\xff"],
        "host": ["h"] * 2,
        "header.body": ["x"] * 2,
        "n": ["1", None],
    }
    assert pyarrow.record_batch(EventBatch.of_bodies([])).num_rows == 0
