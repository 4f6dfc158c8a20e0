"""Sends the lines of one range of a file exactly once, however often the range is sent.

Lines are divided into chunks that are the same for each attempt (:mod:`.lines.chunks`). Chunks are sent one request at
a time, under a hash key that names the range, with sequence numbers that follow the offset in the file. LogHub stores a
number only if it is above the last one of its key. So lines that an earlier attempt has stored are not stored again.

Source: LogHub protocol, Idempotent write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from ..model.errors import ProducerError, ResultFailedError
from ..model.futures import SendFuture
from ..model.sequence import SequenceKey
from ..spark.errors import DeliveryFailedError
from ..spark.failure_reason import reason_of
from ..text.plural import counted
from .delivery import File
from .figures import Figures
from .files.plan import Split
from .job import ShipJob
from .lines.chunks import Chunk, chunks_of
from .lines.line import Block, Line
from .outcome_ledger import Account, Place, Stored, acknowledge, records_of

# Maximum body of a request: the limit of the service, without room for the fields of the log group.
_MOST_BYTES = (8 << 20) - (64 << 10)

#: Encodes lines as concatenated records, and returns their number, too.
Encode = Callable[[File, Block | Line, Figures], tuple[bytes, int]]


def range_key(run: str, split: Split) -> SequenceKey:
    """Return the sequence key of a range of a file.

    :param run: the unique name of the job, or of the batch of a job that follows files.
    """
    what = "\0".join((run, split.file.path, str(split.start)))
    return SequenceKey(hashlib.sha256(what.encode(errors="surrogateescape")).hexdigest()[:32])


class ExactDelivery:
    """The lines of one range that are sent exactly once.

    :param of: the file; its stream is the range's own, opened with its key for each attempt.
    :param encode: encodes lines as records.
    :param ack_timeout: maximum wait for an acknowledgement, seconds.
    """

    def __init__(
        self, of: File, job: ShipJob, encode: Encode, figures: Figures, account: Account, ack_timeout: float
    ) -> None:
        self._of = of
        self._job = job
        self._encode = encode
        self._figures = figures
        self._account = account
        self._ack_timeout = ack_timeout
        self._sent: tuple[Chunk, int, Place, SendFuture] | None = None

    def ship(self, read: Iterable[Block | Line], stored: Stored) -> None:
        """Send all lines, and wait until they are stored.

        :param stored: the lines that are already stored.
        :raises DeliveryFailedError: lines were rejected or not acknowledged.
        """
        try:
            for chunk in chunks_of(read):
                place = self._account.begin(self._of.name, chunk.lines)
                if stored.has(self._of.name, chunk.lines):
                    self._account.store(place, records_of(chunk.lines))
                else:
                    self._send(chunk, place)
        finally:
            self._settle()

    def _send(self, chunk: Chunk, place: Place) -> None:
        found = Figures()
        body, logs = self._encode(self._of, chunk.lines, found)
        halves = chunk.halves() if len(body) > _MOST_BYTES else None
        if halves is not None:
            for half in halves:
                self._send(half, place)
            return
        self._settle()  # A key has one request in flight, so all numbers below the last stored one are stored.
        try:
            future = self._of.stream._send_numbered(body, logs, chunk.number)
        except ProducerError as error:
            raise self._not_stored(chunk, logs, f"{type(error).__name__}: {error}") from error
        self._sent = chunk, found.unparsed, place, future

    def _settle(self) -> None:
        """Wait for the request in flight."""
        if self._sent is None:
            return
        (chunk, unparsed, place, future), self._sent = self._sent, None
        logs = records_of(chunk.lines)
        try:
            result = future.result(self._ack_timeout)
        except TimeoutError as error:
            self._account.doubt(place, logs)
            raise self._not_stored(chunk, logs, str(error)) from error
        except ResultFailedError as error:
            if error.result.may_have_been_stored:
                self._account.doubt(place, logs)
            raise self._not_stored(chunk, logs, str(reason_of(error.result))) from error
        figures = self._figures
        figures.batches += 1
        figures.attempts += result.attempt_count
        figures.retries += result.attempt_count - 1
        figures.unparsed += unparsed
        acknowledge(figures, chunk.lines, logs)
        figures.already_stored += logs * result.already_written
        self._account.store(place, logs)

    def _not_stored(self, chunk: Chunk, logs: int, reason: str) -> DeliveryFailedError:
        what = "a line" if logs == 1 else f"{logs:,} lines"
        return DeliveryFailedError(
            f"{what} of {self._of.path} from byte {chunk.lines.offset} on for {self._job.target}: "
            f"{' '.join(reason.split())}. Acknowledged of this portion before: "
            f"{counted(self._figures.records, 'record', form=',')}"
        )
