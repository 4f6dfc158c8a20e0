"""A sender that vouches for the records of one Spark task.

A Spark Python worker dies by ``os._exit`` or SIGKILL, without exit handlers, so nothing may be left to the end of the
process: a task waits for its own acknowledgements before it ends, and fails if one is missing, so that Spark runs it
again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ..config import ProducerConfig, ProjectConfig
from ..errors import ProducerError
from ..records import LogItem
from ..results import Result, SendFuture
from .errors import DeliveryFailedError
from .executor import get_producer

#: How long a task waits for the acknowledgement of what it sent, seconds.
ACK_TIMEOUT = 600.0

_CHUNK_RECORDS = 512
_CHUNK_BYTES = 1 << 20
_MAX_OUTSTANDING_CHUNKS = 64


@dataclass(slots=True)
class Delivered:
    """What was acknowledged.

    :ivar records: records.
    :ivar batches: batches that they travelled in.
    :ivar attempts: requests that those took.
    :ivar retries: requests beyond the first of each batch.
    """

    records: int = 0
    batches: int = 0
    attempts: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class _Chunk:
    futures: list[SendFuture]
    records: int
    first: object
    last: object


class PartitionSender:
    """Sends the records of one task and, at its end, vouches for each of them.

    Use it as a context manager inside ``foreachPartition``; leaving the block waits for every acknowledgement::

        def ship(rows):
            with PartitionSender(project, "app-log", config=config) as sender:
                for row in rows:
                    sender.send(row.asDict())

    The number of records on their way is bounded, so a partition may be of any size.

    :param project: where the records go, and who signs for them.
    :param logstore: the logstore.
    :param topic: the records' topic.
    :param source: the records' source; this host's address if left out.
    :param config: options of the producer.
    :param ack_timeout: how long to wait for an acknowledgement, seconds.
    """

    def __init__(
        self,
        project: ProjectConfig,
        logstore: str,
        *,
        topic: str = "",
        source: str | None = None,
        config: ProducerConfig | None = None,
        ack_timeout: float = ACK_TIMEOUT,
    ) -> None:
        self._producer = get_producer(project, config=config)
        self._stream = self._producer.stream(project.project, logstore, topic=topic, source=source)
        self._target = f"{project.project}/{logstore} at {project.endpoint}"
        self._ack_timeout = ack_timeout
        self._buffer: list[Mapping[str, Any] | LogItem] = []
        self._buffered_bytes = 0
        self._positions: list[object] = []
        self._outstanding: deque[_Chunk] = deque()
        self._last_result: Result | None = None
        self._delivered = Delivered()

    def send(self, log: Mapping[str, Any] | LogItem, *, position: object = None) -> None:
        """Send one record; an error may be that of an earlier one.

        :param log: the fields, or a ``LogItem`` with a time of its own.
        :param position: where it came from, for error messages.
        :raises DeliveryFailedError: a record sent before was not acknowledged, or this one cannot be sent.
        """
        self._buffer.append(log)
        self._positions.append(position)
        self._buffered_bytes += _size(log)
        if len(self._buffer) >= _CHUNK_RECORDS or self._buffered_bytes >= _CHUNK_BYTES:
            self._pass_on()

    def finish(self) -> Delivered:
        """Wait until every record is acknowledged.

        :returns: what was, since this sender was made.
        :raises DeliveryFailedError: one was not, or not within ``ack_timeout``.
        """
        if self._buffer:
            self._pass_on()
        if self._outstanding:
            # Sends at once what lingers in open batches; whether it arrived is for the futures to say.
            with self._explained(self._outstanding[0]):
                self._producer.flush(timeout=self._ack_timeout)
        while self._outstanding:
            self._settle_oldest()
        return self._delivered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()

    def _pass_on(self) -> None:
        logs, positions = self._buffer, self._positions
        self._buffer, self._positions, self._buffered_bytes = [], [], 0
        chunk = _Chunk([], len(logs), positions[0], positions[-1])
        with self._explained(chunk):
            chunk.futures.extend(self._stream.send_many(logs))
        self._outstanding.append(chunk)
        while len(self._outstanding) > _MAX_OUTSTANDING_CHUNKS:
            self._settle_oldest()

    def _settle_oldest(self) -> None:
        chunk = self._outstanding[0]
        deadline = time.monotonic() + self._ack_timeout
        with self._explained(chunk):
            for future in chunk.futures:
                self._count(future.result(max(deadline - time.monotonic(), 0)))
        self._outstanding.popleft()
        self._delivered.records += chunk.records

    def _count(self, result: Result) -> None:
        # The sends of one batch share one result, and neighbours share a batch.
        if result is not self._last_result:
            self._last_result = result
            self._delivered.batches += 1
            self._delivered.attempts += result.attempt_count
            self._delivered.retries += result.attempt_count - 1

    @contextmanager
    def _explained(self, chunk: _Chunk) -> Iterator[None]:
        """Say everything in one line: only text crosses from a Spark worker to the driver."""
        try:
            yield
        except (ProducerError, TimeoutError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            waiting = sum(other.records for other in self._outstanding if other is not chunk)
            raise DeliveryFailedError(
                f"{chunk.records} records{_span(chunk)} for {self._target} were not acknowledged: {reason}. "
                f"Acknowledged by this task before: {self._delivered.records}; still on their way: {waiting}"
            ) from error


def _span(chunk: _Chunk) -> str:
    if chunk.first is None:
        return ""
    return f" ({chunk.first})" if chunk.first == chunk.last else f" ({chunk.first} to {chunk.last})"


def _size(log: Mapping[str, Any] | LogItem) -> int:
    """Roughly the bytes of a record, to keep a chunk small when records are large."""
    contents = log.contents if isinstance(log, LogItem) else log
    values = contents.values() if isinstance(contents, Mapping) else (value for _, value in contents)
    return sum(len(value) for value in values if isinstance(value, str | bytes))
