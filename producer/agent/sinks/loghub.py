"""LogHub, by a producer of this package.

A body is one field of a log; what is shared of the headers becomes tags of the LogGroup, and columns become fields.
Lines go from the block to the wire without a step for each of them.

**Once.** A batch of a channel that no other sink takes from has a number, which it keeps: in a file channel for all
time, in memory for that of the process. Each of its pieces is a request under a number made of that, and under a key
made of the number's name (:mod:`..origins`), the target and how batches are encoded. LogHub stores a number only if it
is above the last one of its key: so what is delivered again, since an answer was lost or the process was killed before
the take was committed, is not stored again. Batches go side by side in ``lanes``, each with a key of its own; within a
lane they arrive in order, and none is sent behind one that failed.

What the service refuses of a batch is found by halves, each a request under a key of its own, made of the batch's
number and the rows: so when the batch is delivered again, and refused again, its other rows are not stored again.

Where several sinks take from one channel the sink counts for itself, and what is taken again may be stored twice.

Source: LogHub protocol, Idempotent write.
"""

from __future__ import annotations

import contextlib
import hashlib
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
from ...runtime.clock import Deadline
from ...spark.failure_reason import blames_rows, reason_of
from ..events.batch import EventBatch, Headers
from ..events.interfaces import Context, Refusal, RefusedError, SinkError
from ..flow.held_back import ASIDE_BYTES
from ..protocols.loghub import LogstoreOptions
from ..protocols.proxies import proxies_of
from .loghub_pieces import MOST_PIECES, PIECE_BYTES, Pieces

_CLOSE_SECONDS = 10.0
#: Who waits for an answer looks so often whether it is to be given up.
_LOOK = 0.2
#: The code of an attempt that had no answer.
_NO_ANSWER = "RequestError"
#: Events of a batch that are refused one by one while none of it is stored; then only what is whole is asked for.
_MOST_ALONE = 100
#: Milliseconds that retries go on for once the sink is to end.
_LAST_RETRIES = 1000


class LogHubSink:
    """See the module."""

    most_events = 1_000_000

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(LogstoreOptions):
        """Where to, and how."""

        topic: str = option("", doc="the logs' topic")
        source: str | None = option(None, doc="the logs' source; by default this host's address")
        field: str = option("content", doc="the field that holds a body")
        headers: str = option(
            "tags", doc="what becomes of headers that all events of a batch share", choices=("tags", "fields", "none")
        )
        columns: str = option("fields", doc="what becomes of other headers", choices=("fields", "none"))
        time_header: str | None = option("timestamp", doc="the header with a log's time, milliseconds since 1970")
        lanes: int = option(4, least=1, most=64, doc="batches in flight at a time; 1 keeps the order of all")
        batch_bytes: int = option(16 << 20, least=1, unit="bytes", doc="bytes of bodies delivered at once, about")
        timeout: float = option(300.0, least=0.1, doc="seconds that a delivery may take")
        retries: int = option(
            2,
            least=0,
            doc="further attempts of a request, before its batch goes back and this is logged",
        )
        compression: Literal["lz4", "zstd", "deflate", "none"] = option("lz4", doc="of requests")

        def __post_init__(self) -> None:
            self.account()
            self.config("check")

        def _sending(self) -> int:
            return max(64 << 20, 6 * self.batch_bytes)

        def holds(self) -> int:
            """Bytes at most."""
            return self._sending() + self.batch_bytes + ASIDE_BYTES

        def config(self, name: str) -> ProducerConfig:
            """The producer's.

            :param name: of its threads.
            :raises ConfigError: something is wrong with it.
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
        """See :class:`~..interfaces.Sink`."""
        deadline = Deadline.after(self._clock, self._options.timeout)
        lanes: dict[tuple[str, int], _Lane] = {}
        for batch in batches:
            self._send(batch, lanes, deadline)
        for lane in lanes.values():
            self._await(lane, deadline)
        self._judge(list(lanes.values()))

    def _judge(self, lanes: Sequence[_Lane]) -> None:
        """Raise what the lanes come to."""
        later = [batch for lane in lanes for batch in lane.later]
        behind = {id(batch) for batch in later}  # they come again whole, and what is refused of them is refused again
        refusals = [refusal for lane in lanes for whole, refusal in lane.refused if id(whole) not in behind]
        numbers = [refusal.batch.sequence or 0 for refusal in refusals if not refusal.undeliverable]
        # What waits by itself takes the numbers from all before it: of one that failed the service may know its number.
        passes = any((batch.sequence or 0) < max(numbers, default=0) for lane in lanes for batch in lane.failed)
        if refusals:
            raise RefusedError.of(refusals, later, in_order=passes, numbered=not numbers)
        if later:
            raise SinkError(next(lane.reason for lane in lanes if lane.later), later)

    def close(self) -> None:
        """See :class:`~..interfaces.Sink`."""
        end = self._end or Deadline.after(self._clock, _CLOSE_SECONDS)
        with contextlib.suppress(CloseTimeoutError):  # what was on its way has gone back, and comes again
            self._producer.close(timeout=end.remaining(self._clock))

    def give_up(self, deadline: Deadline) -> None:
        """See :class:`~..interfaces.Sink`."""
        self._end = deadline
        self._producer._leave_at_exit()

    def _send(self, batch: EventBatch, lanes: dict[tuple[str, int], _Lane], deadline: Deadline) -> None:
        """Put a batch on its way, behind those of its lane."""
        origin, sequence = batch.origin, batch.sequence
        if origin is None or sequence is None:
            origin, sequence = self._own, self._count
            self._count += 1
        number, first = sequence % self._options.lanes, (sequence + 1) * MOST_PIECES
        lane = lanes.setdefault((origin, number), _Lane())  # each with a key, whose numbers rise
        try:
            self._direct(lane, batch, SequenceKey(self._hash_key(origin, number), first), deadline)
        except InvalidArgumentError as error:  # of the tags, which all its events share
            lane.refuse(batch, str(error))
            return
        if lane.reason:
            lane.later.append(batch)
            return
        part, pieces = self._sendable(batch, lane)
        sent = _Sent(batch, part, f"{origin}/{sequence}")
        try:
            assert lane.stream is not None  # noqa: S101  # it was made above
            for n, (data, logs) in enumerate(pieces):
                sent.futures.append(lane.stream._send_numbered(bytes(data), logs, first + n))
                sent.logs.append(logs)
        except ProducerError as error:
            self._await(lane, deadline)  # behind one that failed the stream is stopped
            lane.fail(f"{type(error).__name__}: {error}", batch)
        else:
            lane.sent.append(sent)

    def _direct(self, lane: _Lane, batch: EventBatch, key: SequenceKey, deadline: Deadline) -> None:
        """See to it that what the lane sends has the batch's tags."""
        tags = self._tags(batch)
        if lane.stream is None or lane.tags != tags:
            self._await(lane, deadline)  # streams know nothing of each other, and the numbers of a key must rise
            lane.stream, lane.tags = self._stream(key, tags), tags

    def _await(self, lane: _Lane, deadline: Deadline) -> None:
        """Learn what became of what is on its way in a lane."""
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
        """Store what can be stored of a refused batch, and return its other events, each with the service's reason.

        :param place: that of the request that was refused; those before it are stored.
        :raises SinkError: it was not stored, for what may pass.
        """
        first, *others = sent.parts_from(place)
        asked: Result | None = result
        waiting, found, stored = [*reversed(others), first], list[Refusal](), False
        while waiting:
            start, part = waiting.pop()
            asked = asked or self._store_alone(part, f"{sent.name}/{start}+{part.count}")
            if asked is None:
                stored = True
            elif part.count > 1 and (stored or len(found) < _MOST_ALONE):
                left, right = part.halves()
                waiting += [(start + left.count, right), (start, left)]
            else:
                found.append(Refusal(part, str(reason_of(asked)), False, asked.attempt_count, asked.request_id))
            asked = None
        return found

    def _store_alone(self, part: EventBatch, name: str) -> Result | None:
        """Store a part of a batch in one request, under a key of its own; the result if the service refuses it.

        :param name: of the part, for all time.
        :raises SinkError: it was not stored, for what may pass.
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
        """What of a batch can be sent, and its pieces; those of its events that can never be are refused, each alone,
        or all of it if it is too large as a whole. They have no part in a number, so what comes behind need not wait
        for them.
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
        """Another one for whatever would make other requests of the same batch."""
        options = self._options
        target = options.endpoint, options.project, options.logstore
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
        """The place and the result of the first request that will never be stored; None once all are stored.

        :raises SinkError: one was not stored in time, for what may pass.
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
        """
        :raises TimeoutError: it takes too long.
        :raises ResultFailedError: it failed, perhaps since the sink is to end.
        """
        while not deadline.expired(self._clock) and not future.done():
            if self._end is not None:
                self.close()
            with contextlib.suppress(TimeoutError):
                future.result(min(_LOOK, deadline.remaining(self._clock) or 0.0))
        future.result(0)


@dataclass(slots=True)
class _Sent:
    """A batch on its way.

    :ivar batch: as it was taken.
    :ivar part: what of it is sent.
    :ivar name: the batch's, for all time.
    :ivar futures: of its requests.
    :ivar logs: how many events each of these has.
    """

    batch: EventBatch
    part: EventBatch
    name: str
    futures: list[SendFuture] = field(default_factory=list)
    logs: list[int] = field(default_factory=list)

    def parts_from(self, place: int) -> Iterator[tuple[int, EventBatch]]:
        """The events of each request from this one on, and the place of the first of them in the batch."""
        rows = range(self.part.count)
        for number in range(place, len(self.logs)):
            start = sum(self.logs[:number])
            yield start, self.part.part([start <= row < start + self.logs[number] for row in rows])


@dataclass(slots=True)
class _Lane:
    """Batches under one key, of which none is sent behind one that failed or was refused.

    :ivar stream: the handle under which they go.
    :ivar sent: what is on its way.
    :ivar refused: batches, and what of each can never be stored.
    :ivar reason: why nothing more is sent: the service refused one, or it failed; empty as long as none was.
    :ivar failed: what may have been stored.
    :ivar later: what was not stored, since it failed, or comes behind that one.
    """

    stream: Stream | None = None
    tags: Headers = field(default_factory=dict)
    sent: list[_Sent] = field(default_factory=list)
    refused: list[tuple[EventBatch, Refusal]] = field(default_factory=list)
    reason: str = ""
    failed: list[EventBatch] = field(default_factory=list)
    later: list[EventBatch] = field(default_factory=list)

    def refuse(self, batch: EventBatch, reason: str, part: EventBatch | None = None) -> None:
        """A batch, or a part of it, can never be sent."""
        refusal = Refusal(batch if part is None else part, reason, undeliverable=True, attempts=0)
        self.refused.append((batch, refusal))

    def fail(self, reason: str, batch: EventBatch) -> None:
        """A batch was not stored."""
        if not self.reason:
            self.failed.append(batch)
        self.reason = self.reason or reason
        self.later.append(batch)
