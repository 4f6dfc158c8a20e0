"""Deliver to LogHub, by a producer of this package.

The body is one field of a log. Headers that all events share become tags of the LogGroup, and other headers become
fields. Lines are encoded in blocks, without a step for each line.

**Exactly once.** A batch has a number if no other sink takes from its channel. In a file channel the number is
permanent, in memory it lasts as long as the process. Each piece of the batch is a request with a sequence number made
from the batch's number, under a key. The key is made from the origin of the number (:mod:`..origins`), the target and
the encoding. LogHub stores a sequence number only if it is above the last one of its key. So a batch that is delivered
again after a lost answer or a crash is not stored again. Batches are sent concurrently in ``lanes``, each with a key of
its own. Within a lane they arrive in order, and none is sent after a failed one.

If the service refuses a batch, the refused rows are found by halving. Each half is a request under a key of its own,
made from the batch's number and the rows. So if the batch is delivered and refused again, its other rows are not stored
again.

If several sinks take from one channel, the sink counts batches itself, and batches taken again may be stored twice.

The file is long because numbers, lanes and halving decide together which request a row is in.

Specification: LogHub protocol, Idempotent write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...client.producer import Producer
from ...client.stream import Stream
from ...model.config import HttpConfig, ProducerConfig
from ...model.errors import (
    CloseTimeoutError,
    InvalidArgumentError,
    LogSizeTooLargeError,
    ProducerError,
    ResultFailedError,
)
from ...model.futures import SendFuture
from ...model.interfaces import Record
from ...model.options import option
from ...model.results import Result
from ...model.sequence import SequenceKey
from ...runtime.clock import Clock, Deadline
from ...spark.failure_reason import blames_rows, reason_of
from ...wire.read_log_group import read_record
from ..events.batch import EventBatch, Headers
from ..events.interfaces import Context, Refusal, RefusedError, SinkError
from ..flow.held_back import HELD_BYTES
from ..protocols.proxies import proxies_of
from .loghub_pieces import MOST_PIECES, PIECE_BYTES, FormOptions, Pieces

_CLOSE_SECONDS = 10.0
#: Seconds between two checks whether to stop while waiting for an answer.
_CHECK_SECONDS = 0.2
#: Error code of an attempt without an answer.
_NO_ANSWER = "RequestError"
#: Maximum number of refused single events of a batch from which no row is stored. Beyond it, groups are refused whole.
_MOST_ALONE = 100
#: Milliseconds for which retries continue once the sink has to stop.
_LAST_RETRIES = 1000


class LogHubSink:
    """Sink that delivers to a logstore; exactly once from a file channel without other sinks."""

    most_events = 1_000_000

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(FormOptions):
        """The logstore, the form of logs, and how they are sent."""

        lanes: int = option(4, least=1, most=64, doc="concurrent batches; 1 keeps the order of all events")
        batch_bytes: int = option(16 << 20, least=1, unit="bytes", doc="bytes of bodies delivered at once, roughly")
        timeout: float = option(300.0, least=0.1, doc="seconds for a delivery")
        retries: int = option(
            2,
            least=0,
            doc="retries of a request before its batch goes back to the channel, with a log line",
        )
        compression: Literal["lz4", "zstd", "deflate", "none"] = option("lz4", doc="compression of requests")

        def __post_init__(self) -> None:
            self.account()
            self.config("check")

        def _sending(self) -> int:
            return max(64 << 20, 6 * self.batch_bytes)

        def holds(self) -> int:
            """Return the maximum bytes that the sink holds."""
            return self._sending() + self.batch_bytes + HELD_BYTES

        def config(self, name: str) -> ProducerConfig:
            """Return the producer's configuration.

            :param name: the name of its threads.
            :raises ConfigError: an option is invalid.
            """
            return ProducerConfig(
                total_size_in_bytes=self._sending(),
                retries=self.retries,
                compression=self.compression,
                sign_version=self.sign_version,
                region=self.region,
                drain_timeout_ms=_LAST_RETRIES,
                http=HttpConfig(proxies=proxies_of(self.proxy)),
                name=name,
            )

    @staticmethod
    def render_sample(options: Options, event: EventBatch, clock: Clock) -> str:
        """Return the log of an event as JSON, with its topic and tags.

        :raises ProducerError: the event can never be sent.
        """
        tags = event.shared if options.headers == "tags" else {}
        common = {"__topic__": options.topic} if options.topic else {}
        common |= {f"__tag__:{name}": value for name, value in tags.items()}
        record = b"".join(bytes(data) for data, _ in Pieces(options, clock).of(event))
        logs = [{"__time__": int(time), **common, **fields} for time, fields in read_record(record)]
        return "\n".join(json.dumps(log, ensure_ascii=False) for log in logs)

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._name, self._clock = options, context.name, context.clock
        self._counters = context.counters
        self._pieces = Pieces(options, context.clock)
        self.most_bytes = options.batch_bytes
        self._own, self._count = secrets.token_hex(16), 0
        self._end: Deadline | None = None
        config = options.config(f"{context.agent}-{context.name}")
        self._producer = Producer(options.account(), config=config, clock=context.clock)
        self._producer._losses.mute()

    def write(self, batches: Sequence[EventBatch]) -> None:
        deadline = Deadline.after(self._clock, self._options.timeout)
        lanes: dict[tuple[str, int], _Lane] = {}
        for batch in batches:
            self._send(batch, lanes, deadline)
        for lane in lanes.values():
            self._await(lane, deadline)
        self._raise_failures(list(lanes.values()))

    def _raise_failures(self, lanes: Sequence[_Lane]) -> None:
        """Raise the error for failed and refused batches, if there are any."""
        later = [batch for lane in lanes for batch in lane.later]
        behind = {id(batch) for batch in later}  # they are delivered again as a whole, and refused again
        refusals = [refusal for lane in lanes for whole, refusal in lane.refused if id(whole) not in behind]
        numbers = [refusal.batch.sequence or 0 for refusal in refusals if not refusal.undeliverable]
        # A batch delivered alone would use numbers after all earlier ones; LogHub may know the number of a failed one.
        passes = any((batch.sequence or 0) < max(numbers, default=0) for lane in lanes for batch in lane.failed)
        if refusals:
            raise RefusedError.of(refusals, later, in_order=passes, numbered=not numbers)
        if later:
            raise SinkError(next(lane.reason for lane in lanes if lane.later), later)

    def close(self) -> None:
        end = self._end or Deadline.after(self._clock, _CLOSE_SECONDS)
        with contextlib.suppress(CloseTimeoutError):  # batches in flight have gone back, and are delivered again
            self._producer.close(timeout=end.remaining(self._clock))

    def give_up(self, deadline: Deadline) -> None:
        self._end = deadline
        self._producer._leave_at_exit()

    def _send(self, batch: EventBatch, lanes: dict[tuple[str, int], _Lane], deadline: Deadline) -> None:
        """Submit a batch, after the others of its lane."""
        origin, sequence = batch.origin, batch.sequence
        if origin is None or sequence is None:
            origin, sequence = self._own, self._count
            self._count += 1
        number, first = sequence % self._options.lanes, (sequence + 1) * MOST_PIECES
        lane = lanes.setdefault((origin, number), _Lane())  # each lane has a key with rising numbers
        try:
            self._direct(lane, batch, SequenceKey(self._hash_key(origin, number), first), deadline)
        except InvalidArgumentError as error:  # a tag, which all its events share
            lane.refuse(batch, str(error))
            return
        if lane.reason:
            lane.later.append(batch)
            return
        part, pieces = self._sendable(batch, lane)
        sent = _Sent(batch, part, f"{origin}/{sequence}")
        try:
            assert lane.stream is not None  # noqa: S101  # _direct() made it
            for n, (data, logs) in enumerate(pieces):
                sent.futures.append(lane.stream._send_numbered(bytes(data), logs, first + n))
                sent.logs.append(logs)
        except ProducerError as error:
            self._await(lane, deadline)  # the stream stops after a failed batch
            lane.fail(f"{type(error).__name__}: {error}", batch)
        else:
            lane.sent.append(sent)

    def _direct(self, lane: _Lane, batch: EventBatch, key: SequenceKey, deadline: Deadline) -> None:
        """Set the stream of a lane to the batch's tags."""
        tags = self._tags(batch)
        if lane.stream is None or lane.tags != tags:
            self._await(lane, deadline)  # numbers of a key must rise, also across streams
            lane.stream, lane.tags = self._stream(key, tags), tags

    def _await(self, lane: _Lane, deadline: Deadline) -> None:
        """Wait for the batches in flight in a lane, and record their results."""
        for sent in lane.sent:
            if lane.reason:
                lane.later.append(sent.batch)
                continue
            try:
                refused = self._refusal(sent.futures, deadline)
                if refused is not None:
                    lane.refused += [(sent.batch, refusal) for refusal in self._refusals(sent, *refused)]
                    lane.reason = str(reason_of(refused[1]))
            except SinkError as error:
                lane.fail(str(error), sent.batch)
        lane.sent.clear()

    def _refusals(self, sent: _Sent, place: int, result: Result) -> list[Refusal]:
        """Store the valid rows of a refused batch; return the others, each with the service's reason.

        :param place: the index of the refused request; those before it are stored.
        :raises SinkError: a request failed temporarily.
        """
        first, *others = sent.parts_from(place)
        refusal: Result | None = result
        waiting, found, stored = [*reversed(others), first], list[Refusal](), False
        while waiting:
            start, part = waiting.pop()
            refusal = refusal or self._store_alone(part, f"{sent.name}/{start}+{part.count}")
            if refusal is None:
                stored = True
            elif part.count > 1 and (stored or len(found) < _MOST_ALONE):
                left, right = part.halves()
                waiting += [(start + left.count, right), (start, left)]
            else:
                found.append(Refusal(part, str(reason_of(refusal)), False, refusal.attempt_count, refusal.request_id))
            refusal = None
        return found

    def _store_alone(self, part: EventBatch, name: str) -> Result | None:
        """Store a part of a batch in one request under a key of its own; return the result if it is refused.

        :param name: the permanent name of the part.
        :raises SinkError: the request failed temporarily.
        """
        deadline = Deadline.after(self._clock, self._options.timeout)
        stream = self._stream(SequenceKey(self._hash_key(name, 0), 1), self._tags(part))
        pieces = list(self._pieces.of(part))
        body = b"".join(bytes(data) for data, _ in pieces)
        try:
            future = stream._send_numbered(body, sum(logs for _, logs in pieces), 1)
        except ProducerError as error:
            raise SinkError(f"{type(error).__name__}: {error}") from error
        refused = self._refusal([future], deadline)
        return None if refused is None else refused[1]

    def _tags(self, batch: EventBatch) -> Headers:
        return batch.shared if self._options.headers == "tags" else {}

    def _stream(self, key: SequenceKey, tags: Headers) -> Stream:
        options = self._options
        return self._producer.stream(
            options.project,
            options.logstore,
            topic=options.topic,
            source=options.source,
            tags=tags,
            idempotent=key,
        )

    def _sendable(self, batch: EventBatch, lane: _Lane) -> tuple[EventBatch, Iterable[tuple[Record, int]]]:
        """Return the part of a batch that can be sent, and its pieces.

        Events that can never be sent are refused one by one, or the whole batch if it is too large as a whole. They
        have no sequence number, so later batches need not wait for them.
        """
        try:
            return batch, self._pieces.of(batch)
        except (LogSizeTooLargeError, InvalidArgumentError) as error:
            reasons = self._pieces.unfit(batch)
            if not any(reasons):
                lane.refuse(batch, str(error))
                return batch, ()
            for reason in filter(None, dict.fromkeys(reasons)):
                lane.refuse(batch, reason, batch.part([each == reason for each in reasons]))
            part = batch.part([not reason for reason in reasons])
            return part, () if all(reasons) else self._pieces.of(part)

    def _hash_key(self, origin: str, lane: int) -> str:
        """Return the key of a lane; it differs for every option that changes the requests of a batch."""
        options = self._options
        # A later endpoint does not count: it may be added without repeating events.
        target = str((*options.endpoints, options.endpoint)[0]), options.project, options.logstore
        form = (
            options.field,
            options.headers,
            options.columns,
            str(options.time_header),
            str(options.lanes),
            str(PIECE_BYTES),
        )
        text = "\0".join((origin, str(lane), self._name, *target, *form))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]

    def _refusal(self, futures: Sequence[SendFuture], deadline: Deadline) -> tuple[int, Result] | None:
        """Return the index and the result of the first refused request; None once all are stored.

        :raises SinkError: a request failed temporarily, or is late.
        """
        for place, future in enumerate(futures):
            try:
                self._wait(future, deadline)
            except TimeoutError as error:
                raise SinkError(f"not acknowledged within {self._options.timeout:.0f} s (timeout)") from error
            except ResultFailedError as error:
                result = error.result
                if blames_rows(result):
                    return place, result
                if result.error_code == _NO_ANSWER:
                    self._counters.add(ConnectionFailedCount=1)
                raise SinkError(str(reason_of(result))) from error
        return None

    def _wait(self, future: SendFuture, deadline: Deadline) -> None:
        """Wait for one request.

        :raises TimeoutError: the time is over.
        :raises ResultFailedError: it failed, perhaps because the sink has to stop.
        """
        while not deadline.expired(self._clock) and not future.done():
            if self._end is not None:
                self.close()
            with contextlib.suppress(TimeoutError):
                future.result(min(_CHECK_SECONDS, deadline.remaining(self._clock) or 0.0))
        future.result(0)


@dataclass(slots=True)
class _Sent:
    """A batch in flight.

    :ivar batch: the batch as it was taken.
    :ivar part: the events that are sent.
    :ivar name: the permanent name of the batch.
    :ivar futures: the futures of its requests.
    :ivar logs: the number of events in each request.
    """

    batch: EventBatch
    part: EventBatch
    name: str
    futures: list[SendFuture] = field(default_factory=list)
    logs: list[int] = field(default_factory=list)

    def parts_from(self, place: int) -> Iterator[tuple[int, EventBatch]]:
        """Yield the events of each request from an index on, with the place of its first event."""
        rows = range(self.part.count)
        for number in range(place, len(self.logs)):
            start = sum(self.logs[:number])
            yield start, self.part.part([start <= row < start + self.logs[number] for row in rows])


@dataclass(slots=True)
class _Lane:
    """Batches under one key, sent in order; none is sent after one that failed or was refused.

    :ivar stream: the stream of the next requests.
    :ivar sent: the batches in flight.
    :ivar refused: batches, with their events that can never be stored.
    :ivar reason: the reason of the first failure or refusal, which stops the lane; empty if there is none.
    :ivar failed: batches that may have been stored.
    :ivar later: batches that were not stored: failed ones, and those after them.
    """

    stream: Stream | None = None
    tags: Headers = field(default_factory=dict)
    sent: list[_Sent] = field(default_factory=list)
    refused: list[tuple[EventBatch, Refusal]] = field(default_factory=list)
    reason: str = ""
    failed: list[EventBatch] = field(default_factory=list)
    later: list[EventBatch] = field(default_factory=list)

    def refuse(self, batch: EventBatch, reason: str, part: EventBatch | None = None) -> None:
        """Record that a batch, or a part of it, can never be sent."""
        refusal = Refusal(batch if part is None else part, reason, undeliverable=True, attempts=0)
        self.refused.append((batch, refusal))

    def fail(self, reason: str, batch: EventBatch) -> None:
        """Record that a batch was not stored."""
        if not self.reason:
            self.failed.append(batch)
        self.reason = self.reason or reason
        self.later.append(batch)
