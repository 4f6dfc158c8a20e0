"""Sends what is read of files, and vouches for each line: acknowledged, or the figures say why not.

Blocks of lines are sent as they come, many requests at a time: as they are where nothing is looked for in them, as
columns where a parser finds fields, and record by record where a line is not UTF-8, or in pieces. Where LogHub refuses
a request for what is in it, the block is sent again in halves until the lines at fault are known; the others arrive.

The tags of a batch say where its lines come from, as those of the service's own collectors do: ``__path__``,
``__hostname__``, and ``__inode__`` where the offset is asked for.
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

#: How often a portion is tried.
ATTEMPTS = 4

# A record may fill a batch but for the group's own fields.
_MAX_RECORD_BYTES = (8 << 20) - (64 << 10)
# No shorter line can come to that: what a parser finds in it is at most eight times as much.
_LONG_LINE_BYTES = _MAX_RECORD_BYTES // 8
# Of lines that are one request whatever they come to.
_UNBOUNDED = 1 << 30
# glibc keeps what is freed, up to twice the size of the largest block that ever was, which is more than what lines are
# read into: each megabyte of them would else take that from the system anew, and touching it costs a tenth of all CPU.
_KEPT_BYTES = 8 << 20


class PortionSender:
    """Ships portions, one after the other; one a process.

    :param producer: sends.
    :param job: where to, and how.
    """

    def __init__(self, producer: Producer, job: ShipJob) -> None:
        self._producer = producer
        self._job = job
        self._log_start = None if job.multiline_start is None else start_pattern(job.multiline_start)
        self._oddities = Oddities()
        # Neighbouring files tell the same columns.
        self._parsing = lru_cache(maxsize=64)(self._make_parsing)
        self._host = socket.gethostname()
        bytearray(_KEPT_BYTES)  # and freed

    def shipping(self, path: str, figures: Figures) -> Shipping:
        """Ship lines as they come, of what is no file.

        :param path: its name in tags and messages.
        :param figures: grow.
        """
        return Shipping(self, LogFile(path, 0, None), figures)

    def first(self, file: LogFile, figures: Figures) -> list[LogItem]:
        """Return the records of the first two blocks of a file, none of which is sent. The second one is a last line
        without an end, in a file of up to 1 MiB.

        :param figures: grows by the lines that are not parsed.
        :raises FileChangedError: it cannot be read.
        """
        of = self._file(file)
        blocks = self._records(Split(file, 0, file.size, begins_line=True), figures)
        return [item for lines in itertools.islice(blocks, 2) for item in self._items(of, lines, figures)]

    def ship(self, portion: Portion) -> tuple[Figures, Account]:
        """Read a portion, send it, and wait until each line of it is acknowledged; several times if it fails, until
        nothing was acknowledged for as long as the job waits.

        No attempt sends what one before it has stored. What cannot be read of a file, now or later, is in ``lost`` of
        the figures, and the other files are shipped. If all attempts fail, the reason is in ``failed``.
        """
        figures, account, left = Figures(), Account(), self._job.ack_timeout
        for attempt in range(ATTEMPTS):
            tried, stored = Account(), Stored(account)
            began, acknowledged = time.monotonic(), figures.records
            try:
                self._ship(portion, figures, tried, stored, left)
            except Exception as error:  # noqa: BLE001  (whatever it is, the driver is told)
                account += tried
                figures.failed_attempts += 1
                if figures.records > acknowledged:
                    left = self._job.ack_timeout
                elif isinstance(error, DeliveryFailedError):
                    left -= time.monotonic() - began
                hopeless = isinstance(error, LinesRefusedError) or is_timeout(error) or left <= 0
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

        :raises DeliveryFailedError: lines were not acknowledged, or refused.
        :raises FileUnreadableError: a file cannot be read at this moment; :class:`~.files.remote.seen.RemoteError`
            likewise.
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

        :raises FileChangedError: the rest of it cannot be read, now or later.
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
        """Send a range so that each line of it is stored once, whoever sends it again."""
        of = self._file(split.file, sequence=range_key(run, split))

        def encode(lines: Block | Line, figures: Figures) -> tuple[bytes, int]:
            return self._encode(of, lines, figures)

        delivery = ExactDelivery(
            of.stream, self._job, encode, figures, account, path=of.path, name=of.name, ack_timeout=ack_timeout
        )
        delivery.ship(self._records(split, figures), stored)

    def _encode(self, of: File, lines: Block | Line, figures: Figures) -> tuple[bytes, int]:
        """The records of lines, one behind the other, and how many they are."""
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
        """What becomes records: the lines of a range without a header."""
        read = read_split(split, self._job.max_line_bytes, self._log_start)
        for number, lines in enumerate(self._oddities.watch(read, split, figures)):
            rest: Block | Line | None = lines
            if self._job.has_headers and number == split.start == 0 and isinstance(lines, Block):
                rest = lines.after_first() if self._header(split.file) else lines
            if rest is not None:
                yield rest

    def _header(self, file: LogFile) -> tuple[str, ...]:
        """The columns that a file names itself; none if its first line names none."""
        line = first_line(file, self._job.max_line_bytes)
        return () if line is None else header_names(line, self._job.delimiter)

    def _make_parsing(self, names: tuple[str, ...]) -> tuple[Parser, BlockColumns | None]:
        """What parses lines.

        :param names: of the columns of the parser ``delimited``.
        """
        job, values = self._job, Values(self._job.delimiter, names)
        parser = make_parser(job.parser, job.pattern, values)
        if job.parser == "text" and not job.file_offset and job.multiline_start is None:
            return parser, None
        from .lines.columns import BlockColumns  # text needs no Arrow, which takes long to import

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
        """Send lines in the quickest way that does right by them."""
        if isinstance(lines, Block) and lines.is_text:
            if of.columns is None:
                return of.stream.send_lines(lines.data)
            if not lines.has_longer(_LONG_LINE_BYTES):
                batch = of.columns.batch(lines, figures)
                return of.stream.send_arrow(batch, **_options_of(batch))  # type: ignore[arg-type]  # none of them is the callback
        return of.stream.send_many(self._items(of, lines, figures))

    def _items(self, of: File, lines: Block | Line, figures: Figures) -> list[LogItem]:
        """Lines record by record."""
        records: list[LogItem] = []
        for line in lines.lines() if isinstance(lines, Block) else [lines]:
            record = to_record(line, of.parser)
            if len(line.data) > _LONG_LINE_BYTES and record.size > _MAX_RECORD_BYTES:
                record = record.as_text()
            # The pieces of a long line are one line.
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
    """What the columns are, that are no fields."""
    from .lines.columns import FOUND_FIELDS, LINE_TIMES

    names = batch.schema.names
    return {
        "time_column": LINE_TIMES if LINE_TIMES in names else None,
        "contents_column": FOUND_FIELDS if FOUND_FIELDS in names else None,
    }


class Shipping:
    """Lines on their way that come from one place, which cannot be read again.

    :param sender: sends them.
    :param file: what stands for the place.
    :param figures: grow.
    """

    def __init__(self, sender: PortionSender, file: LogFile, figures: Figures) -> None:
        self._sender = sender
        self._file = file
        self._figures = figures
        self._of: File | None = None
        self._delivery = Delivery(sender._producer, sender._job, figures, NoAccount(), sender._send)

    def add(self, lines: Block | Line) -> None:
        """Send lines; an error may be about earlier ones.

        :raises DeliveryFailedError: lines were not acknowledged, or refused.
        """
        rest: Block | Line | None = lines
        if self._of is None:
            self._figures.files = 1
            header: tuple[str, ...] = ()
            if self._sender._job.has_headers and isinstance(lines, Block):
                header = header_names(next(lines.lines()).data, self._sender._job.delimiter)
                rest = lines.after_first() if header else lines
            self._of = self._sender._file(self._file, header)
        if rest is not None:
            self._figures.file_bytes += len(rest.data)
            self._delivery.add(self._of, rest)

    def settle(self) -> None:
        """Look for what was acknowledged.

        :raises DeliveryFailedError: as :meth:`add`.
        """
        self._delivery.settle()

    def finish(self) -> None:
        """Wait until every line is acknowledged.

        :raises DeliveryFailedError: as :meth:`add`.
        """
        self._delivery.finish()
