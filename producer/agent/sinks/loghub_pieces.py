"""What requests for LogHub are made of: the logs of a batch, a request's at a time.

The same batch always gives the same pieces, since each has a number under which it may be sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ...clock import Clock
from ...config import MAX_BATCH_SIZE_IN_BYTES
from ...errors import InvalidArgumentError, LogSizeTooLargeError
from ...interfaces import Record
from ...records import LogItem
from ...wire.speed import encode_lines, encode_log
from ..batch import EventBatch, Headers

#: Of one request. The service takes 10 MiB, and 5 in older regions.
PIECE_BYTES, _PIECE_LOGS = 2 << 20, 40_960
#: Pieces of a batch, at most: the numbers between those of two batches.
MOST_PIECES = 4096
#: What a request may have besides its logs, bytes.
_HEAD_BYTES = 64 << 10
#: The first millisecond that a log's time cannot say.
_END_OF_TIME = 2**32 * 1000
#: More digits are no time, and may be more than Python turns into a number.
_TIME_DIGITS = 20


class Form(Protocol):
    """What the sink's options say of a log."""

    @property
    def field(self) -> str:
        """That holds a body."""

    @property
    def headers(self) -> str:
        """What becomes of shared headers."""

    @property
    def columns(self) -> str:
        """What becomes of others."""

    @property
    def time_header(self) -> str | None:
        """The header with a log's time, milliseconds."""


class Pieces:
    """Makes them."""

    def __init__(self, form: Form, clock: Clock) -> None:
        self._form, self._clock = form, clock

    def of(self, batch: EventBatch) -> list[tuple[Record, int]]:
        """The batch's records, a request's at a time, and how many each has.

        :raises LogSizeTooLargeError: one of the events, or all of them together, are too large.
        :raises InvalidArgumentError: a header is no text that can be sent.
        """
        pieces = list(self._pieces(batch))
        if len(pieces) > MOST_PIECES:
            raise LogSizeTooLargeError(len(pieces), MOST_PIECES, "a batch, counted in requests of 2 MiB,")
        largest = max((len(records) for records, _ in pieces), default=0)
        if largest > MAX_BATCH_SIZE_IN_BYTES - _HEAD_BYTES:
            raise LogSizeTooLargeError(largest, MAX_BATCH_SIZE_IN_BYTES - _HEAD_BYTES, "an event as a log")
        return pieces

    def unfit(self, batch: EventBatch) -> list[str]:
        """Why each of its events can never be sent; empty for one that can."""
        return [self._unfit(one) for one in self._singly(batch)]

    def _singly(self, batch: EventBatch) -> Iterator[EventBatch]:
        """Each event, in the same form."""
        for headers, body in batch.events():
            own = {name: [headers.get(name)] for name in batch.columns}
            yield EventBatch.of_bodies([body], batch.shared, own)

    def _unfit(self, event: EventBatch) -> str:
        """Why an event can never be sent; empty if it can."""
        try:
            self.of(event)
        except (LogSizeTooLargeError, InvalidArgumentError) as error:
            return str(error)
        return ""

    def _pieces(self, batch: EventBatch) -> Iterator[tuple[Record, int]]:
        now = self._clock.time()
        if batch.ends is not None or batch.columns or (batch.shared and self._form.headers == "fields"):
            yield from _joined(encode_log(log, int(now)) for log in self._logs(batch))
            return
        end, name = 0, self._form.field.encode()
        time = self._time_of(batch.shared) or (int(now), 0)
        while end < len(batch.block):
            records, lines, end = encode_lines(batch.block, end, name, *time, PIECE_BYTES, _PIECE_LOGS, True)
            yield records, lines

    def _logs(self, batch: EventBatch) -> Iterator[LogItem]:
        form = self._form
        wanted = set(batch.shared) if form.headers == "fields" else set()
        wanted |= set(batch.columns) if form.columns == "fields" else set()
        for headers, body in batch.events():
            fields = {name: value for name, value in headers.items() if name in wanted}
            if form.field in fields:  # both are kept
                fields[f"header_{form.field}"] = fields.pop(form.field)
            time, nanos = self._time_of(headers) or (None, None)
            yield LogItem({form.field: body.decode(errors="backslashreplace"), **fields}, time, nanos)

    def _time_of(self, headers: Headers) -> tuple[int, int] | None:
        """Seconds and nanoseconds of the header with the time; None without, or if it is no such number."""
        text = headers.get(self._form.time_header or "", "")
        if not text.isdecimal() or len(text) > _TIME_DIGITS or not 0 <= int(text) < _END_OF_TIME:
            return None
        return int(text) // 1000, int(text) % 1000 * 1_000_000


def _joined(records: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """Records, as many as fit into a request at a time, and how many those are."""
    waiting: list[bytes] = []
    size = 0
    for record in records:
        if waiting and (size + len(record) > PIECE_BYTES or len(waiting) >= _PIECE_LOGS):
            yield b"".join(waiting), len(waiting)
            waiting, size = [], 0
        waiting.append(record)
        size += len(record)
    if waiting:
        yield b"".join(waiting), len(waiting)
