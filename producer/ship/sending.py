"""Sends portions of files until each line is acknowledged; the figures name the reason for any other outcome.

Blocks of lines are sent as they are read, with several requests in flight. A block is sent unchanged if no fields are
parsed, as columns if a parser finds fields, and record by record if a line is not UTF-8, or in pieces. If LogHub
rejects a request for its content, the block is sent again in halves until the lines at fault are found. The other lines
are delivered.

The tags of a batch name the origin of its lines, as those of the service's own collectors do: ``__path__``,
``__hostname__``, and ``__inode__`` with ``--file-offset``.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from ..client.producer import Producer
from ..model.errors import ProducerError
from ..model.futures import SendFuture
from ..model.records import LogItem
from ..model.sequence import SequenceKey
from ..spark.errors import DeliveryFailedError
from ..text.printable import readable
from ..wire.speed import encode_lines, encode_log
from ..wire.text import moment_of
from ..wire.times import NANOS
from .delivery import Delivery, File, is_timeout
from .errors import FileChangedError, LinesRefusedError
from .exact_delivery import ExactDelivery, range_key
from .figures import Figures
from .files.log_file import LogFile
from .files.plan import Split
from .job import ShipJob
from .lines.line import Block, Line
from .lines.log_start import start_pattern
from .lines.oddities import Oddities
from .lines.parsers import Parser, Values, make_parser
from .lines.parsers.delimited import column_names, header_names
from .lines.record import to_record
from .lines.split_lines import first_line, read_split
from .outcome_ledger import Account, NoAccount, Stored, records_of
from .portions import Portion

if TYPE_CHECKING:
    import pyarrow as pa

    from .lines.columns import BlockColumns

#: Maximum number of attempts at a portion.
ATTEMPTS = 4

# Maximum size of a record: a batch without room for the fields of the log group.
_MAX_RECORD_BYTES = (8 << 20) - (64 << 10)
# A shorter line never reaches the maximum size, as parsed fields are at most eight times as large as the line.
_LONG_LINE_BYTES = _MAX_RECORD_BYTES // 8
# The limit of bytes for lines that must be sent in one request, which is never reached.
_UNBOUNDED = 1 << 30
# Size of a block that is allocated and freed once, bytes. After that, glibc keeps up to twice as much freed memory.
# Otherwise each megabyte of lines would take new memory from the system, which costs a tenth of all CPU.
_KEPT_BYTES = 8 << 20


class PortionSender:
    """Ships portions one after the other; each process has one.

    :param producer: the producer that sends the lines.
    :param job: the target and the settings of the job.
    """

    def __init__(self, producer: Producer, job: ShipJob) -> None:
        self._producer = producer
        self._job = job
        self._log_start = None if job.multiline_start is None else start_pattern(job.multiline_start)
        self._oddities = Oddities()
        # Neighbouring files have the same columns.
        self._parsing = lru_cache(maxsize=64)(self._make_parsing)
        self._host = socket.gethostname()
        bytearray(_KEPT_BYTES)  # Allocate the block, and free it.

    def first(self, file: LogFile, figures: Figures) -> list[LogItem]:
        """Return the records of the first two blocks of a file, without sending them.

        In a file of up to 1 MiB, the second block is a last line without an end.

        :param figures: the counters to add unparsed lines to.
        :raises FileChangedError: it cannot be read.
        """
        of = self._file(file)
        blocks = self._records(Split(file, 0, file.size, begins_line=True), figures)
        return [item for lines in itertools.islice(blocks, 2) for item in self._items(of, lines, figures)]

    def ship(self, portion: Portion) -> tuple[Figures, Account]:
        """Read a portion, send it, and wait until each line is acknowledged.

        A failed portion is tried again, until nothing was acknowledged for the timeout of the job. No attempt sends
        lines that an earlier one has stored. If part of a file cannot be read, now or later, the reason is in ``lost``
        of the figures, and the other files are shipped. If all attempts fail, the reason is in ``failed``.
        """
        figures, account, remaining = Figures(), Account(), self._job.ack_timeout
        for attempt in range(ATTEMPTS):
            tried, stored = Account(), Stored(account)
            began, acknowledged = time.monotonic(), figures.records
            try:
                self._ship(portion, figures, tried, stored, remaining)
            except Exception as error:  # noqa: BLE001  (the driver reports any error)
                account += tried
                figures.failed_attempts += 1
                if figures.records > acknowledged:
                    remaining = self._job.ack_timeout
                elif isinstance(error, DeliveryFailedError):
                    remaining -= time.monotonic() - began
                hopeless = isinstance(error, LinesRefusedError) or is_timeout(error) or remaining <= 0
                if attempt == ATTEMPTS - 1 or hopeless:
                    figures.failed = (_reason(error),)
                    break
            else:
                account = tried
                if figures.lost == portion.lost:
                    account.end(portion)
                    figures.ended = _number(portion)
                break
        return figures, account

    def _ship(self, portion: Portion, figures: Figures, account: Account, stored: Stored, ack_timeout: float) -> None:
        """Make one attempt.

        :raises DeliveryFailedError: lines were rejected or not acknowledged.
        :raises FileUnreadableError: a file cannot be read.
        :raises RemoteError: a remote file cannot be read.
        """
        figures.files = figures.file_bytes = figures.skipped_nuls = 0
        figures.lost = portion.lost
        delivery = Delivery(self._producer, self._job, figures, account, self._send, ack_timeout)
        waited = self._producer.stats().memory_wait_seconds
        try:
            for split in portion.splits:
                figures.files += split.start == 0
                figures.file_bytes += split.size
                try:
                    self._ship_split(portion.run, split, delivery, figures, account, stored)
                except FileChangedError as error:
                    figures.lost += (str(error),)
                else:
                    account.read(split)
            delivery.finish()
        except Exception as error:
            delivery.account_for_rest(0.0 if is_timeout(error) else ack_timeout)
            raise
        finally:
            figures.memory_wait_ms += round(1000 * (self._producer.stats().memory_wait_seconds - waited))

    def _ship_split(
        self, run: str, split: Split, delivery: Delivery, figures: Figures, account: Account, stored: Stored
    ) -> None:
        """Send a range.

        :raises FileChangedError: the rest of the range cannot be read, now or later.
        """
        if run:
            self._ship_once(run, split, figures, account, stored, delivery.ack_timeout)
            return
        of = self._file(split.file)
        for lines in self._records(split, figures):
            if stored.has(of.name, lines):
                account.store(account.begin(of.name, lines), records_of(lines))
            else:
                delivery.add(of, lines)

    def _ship_once(
        self, run: str, split: Split, figures: Figures, account: Account, stored: Stored, ack_timeout: float
    ) -> None:
        """Send a range exactly once, however often it is sent."""
        of = self._file(split.file, sequence=range_key(run, split))
        delivery = ExactDelivery(of, self._job, self._encode, figures, account, ack_timeout)
        delivery.ship(self._records(split, figures), stored)

    def _encode(self, of: File, lines: Block | Line, figures: Figures) -> tuple[bytes, int]:
        """Return the concatenated records of lines, and their number."""
        now = moment_of(time.time())[0]
        if isinstance(lines, Block) and lines.is_text:
            if of.columns is None:
                records, count, _ = encode_lines(lines.data, 0, b"content", now, 0, _UNBOUNDED, _UNBOUNDED, True)
                return bytes(records), count
            if not lines.has_longer(_LONG_LINE_BYTES):
                from ..wire.columnar import ColumnarEncoder

                batch = of.columns.batch(lines, figures)
                encoded = ColumnarEncoder(batch.schema, **_options_of(batch)).encode(batch, now)
                return bytes(encoded.body), batch.num_rows
        items = self._items(of, lines, figures)
        return b"".join([encode_log(item, now) for item in items]), len(items)

    def _records(self, split: Split, figures: Figures) -> Iterator[Block | Line]:
        """Yield the lines of a range, without a header."""
        read = read_split(split, self._job.max_line_bytes, self._log_start)
        for number, lines in enumerate(self._oddities.watch(read, split, figures)):
            rest: Block | Line | None = lines
            if self._job.has_headers and number == split.start == 0 and isinstance(lines, Block):
                rest = lines.after_first() if self._header(split.file) else lines
            if rest is not None:
                yield rest

    def _header(self, file: LogFile) -> tuple[str, ...]:
        """Return the columns that the first line of a file names; empty if it names none."""
        line = first_line(file, self._job.max_line_bytes)
        return () if line is None else header_names(line, self._job.delimiter)

    def _make_parsing(self, names: tuple[str, ...]) -> tuple[Parser, BlockColumns | None]:
        """Return the parser of single lines, and the builder of columns; None if lines are sent unchanged.

        :param names: the names of the columns of the parser ``delimited``.
        """
        job, values = self._job, Values(self._job.delimiter, names)
        parser = make_parser(job.parser, job.pattern, values)
        if job.parser == "text" and not job.file_offset and job.multiline_start is None:
            return parser, None
        from .lines.columns import BlockColumns  # The parser ``text`` needs no Arrow, which takes long to import.

        return parser, BlockColumns(job.parser, job.pattern, offset=job.file_offset, times=job.line_time, values=values)

    def _file(self, file: LogFile, header: tuple[str, ...] | None = None, sequence: SequenceKey | None = None) -> File:
        path, job = readable(file.path), self._job
        tags = {"__path__": path, "__hostname__": self._host}
        if job.file_offset:
            tags["__inode__"] = str(file.inode)
        stream = self._producer.stream(
            job.project.project,
            job.logstore,
            topic=job.topic,
            source=job.source,
            tags=tags,
            idempotent=sequence or False,
        )
        names = column_names(job.columns or ()) or ()
        if job.has_headers:
            names = self._header(file) if header is None else header
        return File(file.path, path, stream, *self._parsing(names))

    def _send(self, of: File, lines: Block | Line, figures: Figures) -> list[SendFuture]:
        """Send lines by the fastest method that their content allows."""
        if isinstance(lines, Block) and lines.is_text:
            if of.columns is None:
                return of.stream.send_lines(lines.data)
            if not lines.has_longer(_LONG_LINE_BYTES):
                batch = of.columns.batch(lines, figures)
                return of.stream.send_arrow(batch, **_options_of(batch))  # type: ignore[arg-type]  # none of the options is the callback
        return of.stream.send_many(self._items(of, lines, figures))

    def _items(self, of: File, lines: Block | Line, figures: Figures) -> list[LogItem]:
        """Return the records of lines, made one by one."""
        records: list[LogItem] = []
        for line in lines.lines() if isinstance(lines, Block) else [lines]:
            record = to_record(line, of.parser)
            if len(line.data) > _LONG_LINE_BYTES and record.size > _MAX_RECORD_BYTES:
                record = record.as_text()
            # The pieces of a long line count as one line.
            figures.unparsed += not record.parsed and line.part <= 1
            fields = record.fields(line, offset=self._job.file_offset)
            times = self._job.line_time
            moment = None if times is None else times.of_fields(record.found)
            records.append(LogItem(fields) if moment is None else LogItem(fields, *divmod(moment, NANOS)))
        return records


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ProducerError) else f"{type(error).__name__}: {error}"


def _number(portion: Portion) -> tuple[int, ...]:
    return (portion.number,) if portion.number >= 0 else ()


def _options_of(batch: pa.RecordBatch) -> dict[str, str | None]:
    """Return the options of the columns that are not fields."""
    from .lines.columns import FOUND_FIELDS, LINE_TIMES

    names = batch.schema.names
    return {
        "time_column": LINE_TIMES if LINE_TIMES in names else None,
        "contents_column": FOUND_FIELDS if FOUND_FIELDS in names else None,
    }


class Shipping:
    """Ships the lines of an input that cannot be read again.

    :ivar delivery: its lines in flight.
    :param sender: sends them.
    :param name: the name of the input in tags and messages.
    :param figures: the counters to update.
    """

    def __init__(self, sender: PortionSender, name: str, figures: Figures) -> None:
        self._sender = sender
        self._name = name
        self._figures = figures
        self._of: File | None = None
        self.delivery = Delivery(sender._producer, sender._job, figures, NoAccount(), sender._send)

    def add(self, lines: Block | Line) -> None:
        """Send lines, and handle the acknowledgements that have arrived.

        :raises DeliveryFailedError: these lines, or earlier ones, were rejected or not acknowledged.
        """
        rest: Block | Line | None = lines
        if self._of is None:
            self._figures.files = 1
            header: tuple[str, ...] = ()
            if self._sender._job.has_headers and isinstance(lines, Block):
                header = header_names(next(lines.lines()).data, self._sender._job.delimiter)
                rest = lines.after_first() if header else lines
            self._of = self._sender._file(LogFile(self._name, 0, None), header)
        if rest is not None:
            self._figures.file_bytes += len(rest.data)
            self.delivery.add(self._of, rest)
