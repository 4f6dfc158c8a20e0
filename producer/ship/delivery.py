"""Sends the lines of one portion and waits for their acknowledgement.

Several requests are in flight at a time. If LogHub rejects a request for its content, its lines are sent again in
halves until the lines at fault are found. The other lines are delivered.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..client.producer import Producer
from ..client.stream import Stream
from ..model.errors import ProducerError, ResultFailedError
from ..model.futures import SendFuture
from ..model.results import Result
from ..spark.ack_timeout import send_open
from ..spark.errors import DeliveryFailedError
from ..spark.failure_reason import Reason, blames_rows, reason_of
from ..text.plural import counted
from .errors import LinesRefusedError
from .figures import Figures
from .job import ShipJob
from .lines.line import Block, Line
from .lines.parsers import Parser
from .outcome_ledger import Account, Place, acknowledge, records_of

if TYPE_CHECKING:
    from .lines.columns import BlockColumns

# Stop after this many rejected lines of a portion; its task fails at the first one anyway.
_MOST_REFUSED = 5
# The number of results that are remembered, so that each is counted once. It is limited because input may never end.
_MOST_COUNTED = 10_000
# The number of blocks in flight at which a scan begins for those acknowledged out of order.
_FIRST_SCAN = 8


@dataclass(frozen=True, slots=True)
class File:
    """One file whose lines are sent.

    :ivar name: the path of the file.
    :ivar path: the path as it is shown and tagged.
    :ivar stream: the file's own stream, with its tags.
    :ivar parser: the parser of single lines.
    :ivar columns: the builder of columns from blocks; None to send the lines as they are.
    """

    name: str
    path: str
    stream: Stream
    parser: Parser
    columns: BlockColumns | None


class _Outcome(enum.Enum):
    """The outcome of sent lines."""

    STORED = "stored"
    NOT_STORED = "not stored"
    IN_DOUBT = "in doubt"


@dataclass(frozen=True, slots=True)
class _Sent:
    """Lines that are in flight.

    :ivar of: the file.
    :ivar lines: the block, or the piece of a line.
    :ivar futures: the futures of all records.
    :ivar place: the key, in the account, of the block that holds the lines.
    :ivar alone: True if no other lines are in their batches.
    :ivar unparsed: number of lines that the parser did not recognise.
    """

    of: File
    lines: Block | Line
    futures: list[SendFuture]
    place: Place
    alone: bool = False
    unparsed: int = 0

    @property
    def done(self) -> bool:
        """True if the outcome of all lines is known."""
        return all(future.done() for future in self.futures)

    @property
    def records(self) -> int:
        """The number of records."""
        return records_of(self.lines)

    def __str__(self) -> str:
        what = "a line" if self.records == 1 else f"{self.records:,} lines"
        return f"{what} of {self.of.path} from byte {self.lines.offset} on"


def is_timeout(error: Exception) -> bool:
    """Return True if nothing was acknowledged within the timeout of the job.

    Another attempt would wait as long again, and send lines that may be stored.
    """
    return isinstance(error, DeliveryFailedError) and isinstance(error.__cause__, TimeoutError)


class Delivery:
    """The lines of one portion that are in flight.

    :param send: sends lines of a file and returns their futures.
    :param ack_timeout: maximum wait for the next acknowledgement, seconds; None for the job's timeout.
    """

    def __init__(
        self,
        producer: Producer,
        job: ShipJob,
        figures: Figures,
        account: Account,
        send: Callable[[File, Block | Line, Figures], list[SendFuture]],
        ack_timeout: float | None = None,
    ) -> None:
        self.ack_timeout = job.ack_timeout if ack_timeout is None else ack_timeout
        self._producer = producer
        self._job = job
        self._figures = figures
        self._account = account
        self._send_to = send
        self._sent: deque[_Sent] = deque()
        self._scan_at = _FIRST_SCAN
        self._refused: list[str] = []
        self._counted: dict[int, Result] = {}

    def add(self, of: File, lines: Block | Line) -> None:
        """Send lines, and handle the acknowledgements that have arrived.

        :raises DeliveryFailedError: these lines, or earlier ones, were rejected or not acknowledged.
        """
        self._send(of, lines, self._account.begin(of.name, lines))
        self.settle()

    def settle(self) -> None:
        """Handle the acknowledgements that have arrived.

        :raises DeliveryFailedError: lines were rejected or not acknowledged.
        """
        while self._sent and self._sent[0].done:
            self._settle(self._sent.popleft())
        if len(self._sent) >= self._scan_at:
            self._settle_all_done()

    def _settle_all_done(self) -> None:
        """Handle acknowledgements out of order, so that one slow request does not keep later lines in memory."""
        done: list[_Sent] = []
        left: deque[_Sent] = deque()
        for sent in self._sent:
            (done if sent.done else left).append(sent)
        self._sent = left
        # Scan only when the queue has doubled: a scan for each of many small files would take quadratic time.
        self._scan_at = max(_FIRST_SCAN, 2 * len(left))
        for sent in done:
            self._settle(sent)

    def finish(self) -> None:
        """Wait until every line is acknowledged.

        :raises DeliveryFailedError: lines were rejected or not acknowledged.
        """
        self._wait()
        if self._refused:
            raise self._refusal()

    def _send(self, of: File, lines: Block | Line, place: Place, *, alone: bool = False) -> None:
        found = Figures()
        try:
            futures = self._send_to(of, lines, found)
        except ProducerError as error:
            sent = _Sent(of, lines, list(cast("Sequence[SendFuture]", error.accepted)), place, alone)
            self._account_for(sent, 0.0 if isinstance(error, TimeoutError) else self.ack_timeout, accepted=False)
            raise self._not_acknowledged(sent, f"{type(error).__name__}: {error}") from error
        self._sent.append(_Sent(of, lines, futures, place, alone, found.unparsed))

    def _wait(self) -> None:
        """Flush, and wait for all lines in flight."""
        self._flush()
        while self._sent:
            self._settle(self._sent.popleft())

    def _flush(self) -> None:
        """Send open batches without waiting for the linger time."""
        if not self._sent:
            return
        try:
            send_open(self._producer)
        except ProducerError as error:
            raise self._not_acknowledged(self._sent[0], str(error)) from error

    def _settle(self, sent: _Sent) -> None:
        refused = None
        for future in sent.futures:
            try:
                result = future.result(self.ack_timeout)
            except TimeoutError as error:
                self._account_for(sent, 0.0)
                raise self._not_acknowledged(sent, str(error)) from error
            except ResultFailedError as error:
                refused = error.result
                if not blames_rows(refused):
                    self._account_for(sent, self.ack_timeout)
                    raise self._not_acknowledged(sent, str(reason_of(refused))) from error
                self._count_result(refused)
            else:
                self._count_result(result)
        if refused is None:
            self._stored(sent)
        else:
            self._divide(sent, reason_of(refused))

    def account_for_rest(self, timeout: float) -> None:
        """Wait for the lines in flight after a failure, to account for their outcome.

        :param timeout: maximum wait for all of them, seconds.
        """
        end = time.monotonic() + timeout
        while self._sent:
            self._account_for(self._sent.popleft(), end - time.monotonic())

    def _account_for(self, sent: _Sent, timeout: float, *, accepted: bool = True) -> None:
        """Account for lines, whatever their outcome is.

        :param timeout: maximum wait, seconds.
        :param accepted: False if the producer did not accept all of them.
        """
        end = time.monotonic() + timeout
        outcomes = {self._outcome(future, max(0.0, end - time.monotonic())) for future in sent.futures}
        if accepted and outcomes == {_Outcome.STORED}:
            self._stored(sent)
        elif outcomes - {_Outcome.NOT_STORED}:  # If only some are stored, it is unknown which.
            self._account.doubt(sent.place, sent.records)

    def _stored(self, sent: _Sent) -> None:
        acknowledge(self._figures, sent.lines, sent.records)
        self._figures.unparsed += sent.unparsed
        self._account.store(sent.place, sent.records)

    def _outcome(self, future: SendFuture, timeout: float) -> _Outcome:
        try:
            result = future.result(timeout)
        except TimeoutError:
            return _Outcome.IN_DOUBT
        except ResultFailedError as error:
            self._count_result(error.result)
            return _Outcome.IN_DOUBT if error.result.may_have_been_stored else _Outcome.NOT_STORED
        self._count_result(result)
        return _Outcome.STORED

    def _count_result(self, result: Result) -> None:
        # The pieces of one batch share one result, and neighbouring lines share a batch.
        if id(result) not in self._counted:
            if len(self._counted) > _MOST_COUNTED:
                # Drop the oldest half: the pieces of a batch are acknowledged at about the same time.
                self._counted = dict(list(self._counted.items())[_MOST_COUNTED // 2 :])
            self._counted[id(result)] = result
            self._figures.batches += result.successful
            self._figures.attempts += result.attempt_count
            self._figures.retries += result.attempt_count - 1

    def _divide(self, sent: _Sent, reason: Reason) -> None:
        """Send rejected lines again: first without the lines that shared their batch, then in halves.

        A single line that is rejected alone is at fault.
        """
        parts: tuple[Block | Line, ...] | None = (sent.lines,)
        if sent.alone:
            parts = sent.lines.halves() if isinstance(sent.lines, Block) else None
        if parts is None:
            self._refused.append(f"{sent}: {reason}")
            if len(self._refused) >= _MOST_REFUSED:
                raise self._refusal()
            return
        self._flush()  # Send the open batch first, or the parts would share it.
        others, self._sent = self._sent, deque()
        try:
            for part in parts:
                self._send(sent.of, part, sent.place, alone=True)
                self._wait()
        finally:
            self._sent.extend(others)

    def _refusal(self) -> LinesRefusedError:
        more = f" (and {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
        return LinesRefusedError(
            f"refused by {self._job.target}: {' '.join(self._refused[0].split())}{more}. Fix the line, or leave the "
            "file out with --exclude. Acknowledged of this portion before: "
            f"{counted(self._figures.records, 'record', form=',')}"
        )

    def _not_acknowledged(self, sent: _Sent, reason: str) -> DeliveryFailedError:
        were = "was" if sent.records == 1 else "were"
        return DeliveryFailedError(
            f"{sent} for {self._job.target} {were} not acknowledged: {' '.join(reason.split())}. Acknowledged of this "
            f"portion before: {counted(self._figures.records, 'record', form=',')}; still in flight: "
            f"{sum(other.records for other in self._sent):,}"
        )
