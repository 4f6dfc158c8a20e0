"""Sends the lines of one range of a file so that each is stored once, whoever sends the range again.

Lines go in chunks that are the same each time (:mod:`.lines.chunks`), one request at a time, under a hash key that
names the range and with numbers that follow the place in the file. LogHub stores a number only if it is above the last
one of its key. So what an attempt before this one has stored is not stored again, and the rest is.

Source: LogHub protocol, Idempotent write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from ..client.stream import Stream
from ..model.errors import ProducerError, ResultFailedError
from ..model.futures import SendFuture
from ..model.sequence import SequenceKey
from ..spark.errors import DeliveryFailedError
from ..spark.failure_reason import reason_of
from ..text.plural import counted
from .figures import Figures
from .files.plan import Split
from .job import ShipJob
from .lines.chunks import Chunk, chunks_of
from .lines.line import Block, Line
from .outcome_ledger import Account, Place, Stored, acknowledge, records_of

# Of a request; what the service takes but for the group's own fields.
_MOST_BYTES = (8 << 20) - (64 << 10)

#: From lines to their records, one behind the other, and how many they are.
Encode = Callable[[Block | Line, Figures], tuple[bytes, int]]


def range_key(run: str, split: Split) -> SequenceKey:
    """The key of a range of a file.

    :param run: names the job, or the batch of a job that follows; no two of them have the same.
    """
    what = "\0".join((run, split.file.path, str(split.start)))
    return SequenceKey(hashlib.sha256(what.encode(errors="surrogateescape")).hexdigest()[:32])


class ExactDelivery:
    """The lines of one range.

    :param stream: of its own, with the key of the range; opened anew for each attempt.
    :param path: of the file, for people.
    :param name: of the file, for the account.
    :param ack_timeout: how long it waits for an acknowledgement, seconds.
    :param encode: makes records of lines.
    """

    def __init__(
        self,
        stream: Stream,
        job: ShipJob,
        encode: Encode,
        figures: Figures,
        account: Account,
        *,
        path: str,
        name: str,
        ack_timeout: float,
    ) -> None:
        self._ack_timeout = ack_timeout
        self._stream = stream
        self._job = job
        self._encode = encode
        self._figures = figures
        self._account = account
        self._path = path
        self._name = name
        self._sent: tuple[Chunk, int, Place, SendFuture] | None = None

    def ship(self, read: Iterable[Block | Line], stored: Stored) -> None:
        """Send everything, and wait until it is stored.

        :param stored: what need not be sent again.
        :raises DeliveryFailedError: lines were not acknowledged, or refused.
        """
        try:
            for chunk in chunks_of(read):
                place = self._account.begin(self._name, chunk.lines)
                if stored.has(self._name, chunk.lines):
                    self._account.store(place, records_of(chunk.lines))
                else:
                    self._send(chunk, place)
        finally:
            self._settle()

    def _send(self, chunk: Chunk, place: Place) -> None:
        found = Figures()
        body, logs = self._encode(chunk.lines, found)
        halves = chunk.halves() if len(body) > _MOST_BYTES else None
        if halves is not None:
            for half in halves:
                self._send(half, place)
            return
        self._settle()  # one request of a key at a time: all before the last number are stored
        try:
            future = self._stream._send_numbered(body, logs, chunk.number)
        except ProducerError as error:
            raise self._not_stored(chunk, logs, f"{type(error).__name__}: {error}") from error
        self._sent = chunk, found.unparsed, place, future

    def _settle(self) -> None:
        """Wait for the request that is on its way."""
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
            f"{what} of {self._path} from byte {chunk.lines.offset} on for {self._job.target}: "
            f"{' '.join(reason.split())}. Acknowledged of this portion before: "
            f"{counted(self._figures.records, 'record', form=',')}"
        )
