"""Pieces of LogHub requests: bodies, headers as fields, times."""

import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from producer.agent.events.batch import EventBatch
from producer.agent.events.event_format import read_batch, write_batch
from producer.agent.sinks import loghub_pieces
from producer.agent.sinks.loghub_pieces import FormOptions, Pieces
from producer.model.errors import InvalidArgumentError, LogSizeTooLargeError
from producer.model.records import LogItem
from producer.testing import ManualClock
from producer.wire.log_group import encode_log


def _form(**given: Any) -> FormOptions:
    return FormOptions(project="p", logstore="l", **given)


def _one_by_one(batch: EventBatch, form: FormOptions, now: int) -> bytes:
    """Encode each event from a dictionary, as the sink's documentation describes it."""
    wanted = set(batch.shared) if form.headers == "fields" else set()
    wanted |= set(batch.columns) if form.columns == "fields" else set()
    records = []
    for headers, body in batch.events():
        fields = {name: value for name, value in headers.items() if name in wanted}
        if form.field in fields:
            fields[f"header_{form.field}"] = fields.pop(form.field)
        time = "" if form.time_header is None else headers.get(form.time_header, "")
        seconds, nanos = (int(time) // 1000, int(time) % 1000 * 1_000_000) if time.isdecimal() else (now, 0)
        log = LogItem({form.field: body.decode(errors="backslashreplace"), **fields}, seconds, nanos)
        records.append(encode_log(log, now))
    return b"".join(records)


_NAMES = some.sampled_from(["content", "header_content", "timestamp", "a", "ß"])
_VALUES = some.one_of(some.none(), some.sampled_from(["", "x", "é", "1700000000123", "content"]))
_BODIES = some.lists(some.sampled_from([b"", b"a", b"\xff\xc3", "ß".encode(), b"x" * 300]), min_size=1, max_size=4)
_SHARED = some.dictionaries(_NAMES, some.sampled_from(["", "s", "1700000000123"]), max_size=2)
_BOTH: Mapping[str, Sequence[str | None]] = {
    "content": ["1", None, "3", None],
    "a": [None, "", "x", "y"],
    "header_content": ["5", "6", None, None],
}


@given(
    _BODIES,
    _SHARED,
    some.dictionaries(_NAMES, some.lists(_VALUES, min_size=4, max_size=4), max_size=4),
    some.builds(_form, headers=some.sampled_from(["tags", "fields"]), columns=some.sampled_from(["fields", "none"])),
    some.booleans(),
    some.booleans(),
)
@example([b"0", b"1", b"2", b"3"], {}, _BOTH, _form(), False, False)
@example([b"0", b"1"], {"header_content": "s"}, {"content": ["1", None]}, _form(headers="fields"), False, True)
@example([b"0"], {"": "1700000000123"}, {}, _form(time_header=None), True, True)
@example([b"0", b"1"], {}, {"": ["1700000000123", None]}, _form(columns="none", time_header=None), False, True)
def test_columns_become_the_fields_of_single_events(
    bodies: list[bytes],
    shared: dict[str, str],
    columns: Mapping[str, Sequence[str | None]],
    form: FormOptions,
    lines: bool,
    kept: bool,
) -> None:
    """Encoding by columns gives the bytes of single events, also for missing, empty, binary and colliding headers."""
    own = {name: list(values)[: len(bodies)] for name, values in columns.items() if name not in shared}
    batch = EventBatch.of_bodies(bodies, shared, own)
    if lines:
        batch = EventBatch(b"\n".join([*bodies, b""]), None, len(bodies), shared, own)
    expected = _one_by_one(batch, form, 1000)
    made = Pieces(form, ManualClock(1000.0)).of(read_batch(write_batch(batch)) if kept else batch)
    assert made == [(expected, len(bodies))]
    with patch.object(loghub_pieces, "_SHARED_BYTES", 0):  # each event is a part
        parts = list(Pieces(form, ManualClock(1000.0)).of(batch))
    assert b"".join(bytes(records) for records, _ in parts) == expected
    assert sum(count for _, count in parts) == len(bodies)


def test_large_headers_that_all_events_share_take_a_bounded_memory() -> None:
    """Large shared headers are encoded in parts, one in memory at a time; unfit ones raise before the first part."""
    shared, most = {"n": "x" * 1_000_000}, 3 * loghub_pieces._SHARED_BYTES
    pieces = Pieces(_form(headers="fields"), ManualClock())
    tracemalloc.start()
    try:
        made = [(len(records), count) for records, count in pieces.of(EventBatch.of_bodies([b"a"] * 90, shared))]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(count for _, count in made) == 90
    assert sum(size for size, _ in made) > 90_000_000 > most > peak
    with pytest.raises(LogSizeTooLargeError, match="an event as a log"):
        pieces.of(EventBatch.of_bodies([b"a", b"b"], {"n": "x" * (11 << 20)}))


@pytest.mark.parametrize("columns", [{"n": ["1", "a\ud800"]}, {"\ud800": ["1", "2"]}, {"n": ["ß", "\ud800"]}])
def test_a_header_that_is_not_valid_text_raises_an_error_with_its_name_and_no_request_is_made(
    columns: dict[str, list[str]],
) -> None:
    """A header that is not valid text raises an error with its name, and no request is made."""
    batch = EventBatch.of_bodies([b"a", b"b"], {}, columns)
    name = repr(next(iter(columns))).strip("'").replace("\\", "\\\\")
    with pytest.raises(InvalidArgumentError, match=name):
        Pieces(_form(), ManualClock()).of(batch)
