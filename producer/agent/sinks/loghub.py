"""LogHub, by a producer of this package.

A body is one field of a log; what is shared of the headers becomes tags of the LogGroup, and columns become fields.
Lines go from the block to the wire without a step for each of them.

**Once.** A batch of a channel that no other sink takes from has a number, which it keeps: in a file channel for all
time, in memory for that of the process. Each of its pieces is a request under a number made of that, and under a key
made of the number's name (:mod:`..origins`), the target and how batches are encoded. LogHub stores a number only if it
is above the last one of its key: so what is delivered again, since an answer was lost or the process was killed before
the take was committed, is not stored again. Batches go side by side in ``lanes``, each with a key of its own; within a
lane they arrive in order, and none is sent behind one that failed.

Where several sinks take from one channel the sink counts for itself, and what is taken again may be stored twice.

Source: LogHub protocol, Idempotent write.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
from ...model.results import Result
from ...model.sequence import SequenceKey
from ...runtime.clock import Deadline
from ...spark.failure_reason import blames_rows, reason_of
from ..config.options import option
from ..events.batch import EventBatch, Headers
from ..events.interfaces import Context, RefusedError, SinkError
from ..flow.held_back import ASIDE_BYTES
from ..protocols.loghub import LogstoreOptions
from ..protocols.proxies import proxies_of
from .loghub_pieces import MOST_PIECES, PIECE_BYTES, Pieces

_CLOSE_SECONDS = 10.0
#: Who waits for an answer looks so often whether it is to be given up.
_LOOK = 0.2
#: The code of an attempt that had no answer.
_NO_ANSWER = "RequestError"
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
        compression: str = option("lz4", doc="of requests", choices=("lz4", "zstd", "deflate", "none"))

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
        later = [batch for lane in lanes.values() for batch in lane.later]
        behind = {id(batch) for batch in later}  # they come again whole, and what is refused of them is refused again
        refused = [part for lane in lanes.values() for whole, part in lane.refused if id(whole) not in behind]
        if refused:
            refusal = next(lane.refusal for lane in lanes.values() if lane.refused)
            by_service = [lane.result for lane in lanes.values() if lane.result is not None]
            raise RefusedError(
                refusal,
                refused,
                later,
                in_order=bool(by_service),
                numbered=True,
                undeliverable=not by_service,
                attempts=by_service[0].attempt_count if by_service else 0,
                request_id=by_service[0].request_id if by_service else "",
            )
        if later:
            raise SinkError(next(lane.reason for lane in lanes.values() if lane.later), later)

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
        try:
            pieces = self._sendable(batch, lane)
            assert lane.stream is not None  # noqa: S101  # it was made above
            futures = [
                lane.stream._send_numbered(bytes(data), logs, first + n) for n, (data, logs) in enumerate(pieces)
            ]
        except ProducerError as error:
            self._await(lane, deadline)  # behind one that failed the stream is stopped
            lane.fail(f"{type(error).__name__}: {error}", batch)
        else:
            lane.sent.append((batch, futures))

    def _direct(self, lane: _Lane, batch: EventBatch, key: SequenceKey, deadline: Deadline) -> None:
        """See to it that what the lane sends has the batch's tags."""
        tags = batch.shared if self._options.headers == "tags" else {}
        if lane.stream is None or lane.tags != tags:
            self._await(lane, deadline)  # streams know nothing of each other, and the numbers of a key must rise
            lane.stream, lane.tags = self._stream(key, tags), tags

    def _await(self, lane: _Lane, deadline: Deadline) -> None:
        """Learn what became of what is on its way in a lane."""
        for batch, futures in lane.sent:
            try:
                result = None if lane.reason else self._refusal(futures, deadline)
            except SinkError as error:
                lane.fail(str(error), batch)
                continue
            if lane.reason:
                lane.later.append(batch)
            elif result is not None:
                lane.result, lane.reason = result, str(reason_of(result))
                lane.refuse(batch, lane.reason)
        lane.sent.clear()

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

    def _sendable(self, batch: EventBatch, lane: _Lane) -> Iterable[tuple[Record, int]]:
        """The pieces of a batch; those of its events that can never be sent are refused, each alone, or all of it if it
        is too large as a whole. They have no part in a number, so what comes behind need not wait for them.
        """
        try:
            return self._pieces.of(batch)
        except (LogSizeTooLargeError, InvalidArgumentError) as error:
            reasons = self._pieces.unfit(batch)
            if not any(reasons):
                lane.refuse(batch, str(error))
                return ()
            lane.refuse(batch, next(filter(None, reasons), "it cannot be sent"), batch.part(reasons))
            if all(reasons):
                return ()
            return self._pieces.of(batch.select([not reason for reason in reasons]))

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

    def _refusal(self, futures: Sequence[SendFuture], deadline: Deadline) -> Result | None:
        """The result of a batch that will never be stored; None once it is stored.

        :raises SinkError: it was not stored in time, for what may pass.
        """
        for future in futures:
            try:
                self._wait(future, deadline)
            except TimeoutError as error:
                raise SinkError(f"not acknowledged within {self._options.timeout:.0f} s (timeout)") from error
            except ResultFailedError as error:
                result = error.result
                if blames_rows(result):
                    return result
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
class _Lane:
    """Batches under one key, of which none is sent behind one that failed.

    :ivar stream: the handle under which they go.
    :ivar sent: what is on its way.
    :ivar refused: batches, and what of each can never be stored.
    :ivar refusal: why.
    :ivar result: that of a batch that the service refused: it would take it for stored behind a higher number.
    :ivar reason: why nothing more is sent: the service refused one, or it failed; empty as long as none was.
    :ivar later: what was not stored, since it failed, or comes behind that one.
    """

    stream: Stream | None = None
    tags: Headers = field(default_factory=dict)
    sent: list[tuple[EventBatch, list[SendFuture]]] = field(default_factory=list)
    refused: list[tuple[EventBatch, EventBatch]] = field(default_factory=list)
    refusal: str = ""
    result: Result | None = None
    reason: str = ""
    later: list[EventBatch] = field(default_factory=list)

    def refuse(self, batch: EventBatch, reason: str, part: EventBatch | None = None) -> None:
        """A batch, or a part of it, can never be stored."""
        self.refused.append((batch, batch if part is None else part))
        self.refusal = self.refusal or reason

    def fail(self, reason: str, batch: EventBatch) -> None:
        """A batch was not stored."""
        self.reason = self.reason or reason
        self.later.append(batch)
