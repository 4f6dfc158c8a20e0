"""Pull a logstore, shard by shard.

The position of a shard is the number of the LogGroup after the last one that was read. It is stored in the channel's
commit, as a file's position is. So a crash loses no log, and a file channel stores none twice. Agents that share
a logstore name their ``shards`` or are members of one consumer ``group`` (:mod:`.loghub_group`). LogHub assigns the
shards to the live members. A shard is read from the group's checkpoint, or from the channels' position if that is
further.

The body of an event is the field ``field``, and the other fields are its headers. A log without that field becomes one
JSON object. ``timestamp`` is the log's time in milliseconds. Topic and source of the LogGroup become ``__topic__`` and
``__source__``, and its tags ``__tag__:NAME``.

A quarter of ``max_memory`` is for an answer, decompressed, which exists twice for a moment. Another quarter is for the
events of a batch, which also exist twice. A larger answer is requested again with fewer LogGroups. LogGroups become
events one log at a time, and their memory is counted before (:mod:`..protocols.reckoning`).

Specification: LogHub protocol, Reading back.

The file is long because shards, groups, positions and the memory of an answer are one loop.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

from ...model.config import HttpConfig, ProducerConfig
from ...model.errors import ConfigError, ProducerError
from ...model.options import option
from ...reading.consumer_group import ConsumerGroup
from ...reading.errors import AnswerTooLargeError, LogHubReadError
from ...reading.logstore import LogstoreReader
from ...reading.signed_client import SignedClient
from ...runtime.clock import Clock, Stop
from ...runtime.loggers import get_logger
from ...wire.cursors import MAX_PULL_COUNT, cursor_at, position_of
from ...wire.read_log_group import Fields, fields_of, loggroups_of, read_group
from ..events.batch import EventBatch, Position
from ..events.interfaces import Context, Outlet
from ..protocols.loghub import LogstoreOptions
from ..protocols.proxies import proxies_of
from ..protocols.reckoning import OF_TEXT, SMALL, Reckoning, of_event, of_text, size_of
from .loghub_group import BEATS, Membership, UntilRelease, consumer_name

Event = tuple[dict[str, str], bytes]

_log = get_logger("loghub.agent.source.loghub")

#: Bytes of a batch's events as Python objects, roughly; a batch ends with a LogGroup.
_BATCH_BYTES = 4 << 20
#: Prefixes of headers that all logs of a LogGroup share.
_OF_GROUP = ("__topic__", "__source__", "__tag__:")
#: Divisor of ``max_memory`` for an answer, and for the events of a batch.
_SHARE = 4
#: Bytes that are added to the limit of an answer, since compression may make it larger.
_SPARE = 1 << 20
#: Bytes of the objects of a log's field, besides its texts.
_OF_FIELD = 300
#: Seconds between two requests for new shards.
_SHARDS_INTERVAL = 60.0
_NAMES = {name: name for name in ("project", "logstore", "endpoint", "access_key_id")}


class CursorError(ProducerError):
    """Raised for a cursor that cannot be stored as a position."""


class LogGroupTooLargeError(ProducerError):
    """Raised if the events of one LogGroup need more memory than allowed."""


class LogHubSource:
    """Source of the logs in a logstore, pulled shard by shard."""

    endless = True

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(LogstoreOptions):
        """The logstore, and the place to begin."""

        endpoints: tuple[str, ...] = option(
            (), doc="several endpoints of the project, in place of endpoint: the first one that answers is used"
        )
        start: str = option("begin", doc='where the very first start begins: "begin", "end", or a time in ISO 8601')
        shards: tuple[int, ...] = option((), doc="shards to read; empty for all, including later ones")
        group: str | None = option(None, doc="consumer group whose members share the shards")
        group_timeout: int = option(
            60, least=1, most=86400, doc="seconds after which the shards of a silent member are reassigned"
        )
        consumer: str | None = option(None, doc="this member's name; empty for a generated one, kept in the state")
        field: str = option("content", doc="field that becomes the body")
        poll_delay: float = option(1.0, least=0.01, doc="seconds between two polls when there are no new logs")
        groups: int = option(100, least=1, most=MAX_PULL_COUNT, doc="maximum number of LogGroups in a request")
        max_memory: int = option(
            128 << 20,
            least=1 << 20,
            unit="bytes",
            doc="maximum bytes: a quarter for a decompressed answer, a quarter for a batch's events, each twice",
        )
        retries: int = option(3, least=0, doc="retries of a request before the source is restarted")

        def __post_init__(self) -> None:
            self.account()
            self.config()
            self.first()
            if self.group is not None and self.shards:
                raise ConfigError("shards", "must not be given with group, which assigns the shards", self.shards)

        def holds(self) -> int:
            """Return the maximum bytes that the source holds."""
            return self.max_memory

        def config(self) -> ProducerConfig:
            """Return the configuration of requests.

            :raises ConfigError: it is invalid.
            """
            return ProducerConfig(
                retries=self.retries,
                sign_version=self.sign_version,
                region=self.region,
                http=HttpConfig(proxies=proxies_of(self.proxy)),
            )

        def first(self) -> str:
            """Return the start of the first cursor.

            :raises ConfigError: ``start`` is not a valid time.
            """
            if self.start in ("begin", "end"):
                return self.start
            try:
                return str(int(datetime.fromisoformat(self.start).astimezone().timestamp()))
            except ValueError as error:
                rule = 'must be "begin", "end", or a time such as 2026-01-31T08:00:00+08:00'
                raise ConfigError("start", rule, self.start) from error

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """:raises LogHubReadError: LogHub cannot be read."""
        options = self._options
        with ExitStack() as ends:
            reader = LogstoreReader(self._client(ends, options.config()), options.logstore)
            logstore = Logstore(reader, options.max_memory // _SHARE)
            shards: Shards
            if options.group is None:
                shards = OwnShards(
                    options, logstore, "begin" if outlet.names() else options.first(), self._context.clock
                )
            else:
                shards = self._member(options.group, logstore, ends)
            pulling = _Pulling(options, logstore, shards, outlet, stop)
            while not stop.is_set():
                if not pulling.look():
                    stop.wait(options.poll_delay)
            pulling.end()

    def _member(self, group: str, logstore: Logstore, ends: ExitStack) -> GroupShards:
        options, context = self._options, self._context
        name = options.consumer or consumer_name(context.state, f"{context.agent}-{context.name}")
        silence = max(1, options.group_timeout * 1000 // BEATS)
        hasty = ProducerConfig(
            retries=0,
            sign_version=options.sign_version,
            region=options.region,
            http=HttpConfig(
                connect_timeout_ms=silence,
                read_timeout_ms=silence,
                attempt_timeout_ms=2 * silence,
                proxies=proxies_of(options.proxy),
            ),
        )
        heart, own = (
            ConsumerGroup(self._client(ends, config), options.logstore, group, name)
            for config in (hasty, options.config())
        )
        membership = Membership(heart, own, options.group_timeout, context.clock)
        membership.join(
            lambda: {shard: cursor_at(logstore.number(shard, options.first())) for shard in logstore.shards()}
        )
        return GroupShards(ends.enter_context(membership), logstore)

    def _client(self, ends: ExitStack, config: ProducerConfig) -> SignedClient:
        """Return a client that is closed at the end of the run."""
        account, options = self._options.account(), self._options
        client = SignedClient(
            account,
            f"{options.project}/{options.logstore}",
            names=_NAMES,
            config=config,
            clock=self._context.clock,
            most_bytes=options.max_memory // _SHARE + _SPARE,
        )
        return ends.enter_context(closing(client))


class Logstore:
    """Reader of a logstore, with numbers in place of cursors.

    :param most: maximum bytes of an answer, decompressed.
    :raises CursorError: by each method, if LogHub's cursor is not a number.
    """

    def __init__(self, reader: LogstoreReader, most: int) -> None:
        self._reader, self._most = reader, most

    def shards(self) -> list[str]:
        """Return all shards, including read-only ones."""
        return self._reader.shards()

    def number(self, shard: str, start: str) -> int:
        """Return the number of the first LogGroup received at ``start`` or later."""
        return _number(self._reader.cursor(shard, start))

    def pull(self, shard: str, number: int, count: int) -> tuple[Sequence[bytes], int]:
        """Return LogGroups from a number on, and the number after them.

        :raises AnswerTooLargeError: a single LogGroup exceeds the bytes of an answer.
        """
        while True:
            try:
                read = partial(loggroups_of, most=count)
                page = self._reader.pull(shard, cursor_at(number), read, count, most_bytes=self._most)
            except AnswerTooLargeError:
                if count == 1:
                    raise
                count //= 2
            else:
                return page.content, _number(page.cursor)


def _number(cursor: str) -> int:
    number = position_of(cursor)
    if number is None:
        raise CursorError(f"the cursor {cursor!r} is not a number, so it cannot be stored as a position")
    return number


class Shards(Protocol):
    """Assignment of shards to this source."""

    def wanted(self) -> Collection[str]:
        """Return the shards to read at this moment."""

    def begin(self, shard: str, end: int) -> int:
        """Return the number of the first LogGroup to read in a shard.

        :param end: the channels' position; -1 if they have none.
        """

    def stop(self, outer: Stop) -> Stop:
        """Return the signal that ends a wait for room in a channel."""

    def note(self, ends: Mapping[str, int], *, at_once: bool = False) -> None:
        """Save checkpoints: the numbers up to which shards are safe in the channels."""

    def release(self, shard: str) -> None:
        """Release a shard that is not assigned any more."""


class OwnShards:
    """The configured shards, or all of them, read by this source alone.

    :param start: where reading begins in the shards that exist when the source starts.
    """

    def __init__(self, options: LogHubSource.Options, logstore: Logstore, start: str, clock: Clock) -> None:
        self._named, self._logstore, self._start, self._clock = options.shards, logstore, start, clock
        self._all: Collection[str] = ()
        self._there: Collection[str] | None = None
        self._next_look = clock.monotonic()

    def wanted(self) -> Collection[str]:
        if self._clock.monotonic() >= self._next_look:
            self._all = [str(shard) for shard in self._named] or self._logstore.shards()
            self._there = self._all if self._there is None else self._there
            self._next_look = self._clock.monotonic() + _SHARDS_INTERVAL
        return self._all

    def begin(self, shard: str, end: int) -> int:
        if end >= 0:
            return end
        # A shard that was created later is read from its begin.
        return self._logstore.number(shard, self._start if shard in (self._there or ()) else "begin")

    def stop(self, outer: Stop) -> Stop:
        return outer

    def note(self, ends: Mapping[str, int], *, at_once: bool = False) -> None:
        pass

    def release(self, shard: str) -> None:
        pass


class GroupShards:
    """The shards that a consumer group assigns to this member."""

    def __init__(self, membership: Membership, logstore: Logstore) -> None:
        self._membership, self._logstore = membership, logstore

    def wanted(self) -> Collection[str]:
        return self._membership.wanted()

    def begin(self, shard: str, end: int) -> int:
        checkpoint = self._membership.take(shard)
        if checkpoint is not None:
            return max(end, _number(checkpoint))
        return end if end >= 0 else self._logstore.number(shard, "begin")

    def stop(self, outer: Stop) -> Stop:
        return UntilRelease(outer, self._membership)

    def note(self, ends: Mapping[str, int], *, at_once: bool = False) -> None:
        self._membership.save({shard: cursor_at(end) for shard, end in ends.items()}, at_once=at_once)

    def release(self, shard: str) -> None:
        self._membership.release(shard)


class _Pulling:
    """One run of the source.

    :ivar _next: the number of the next LogGroup of each shard.
    :ivar _stops: the channels' positions in each shard, where batches have to end.
    """

    def __init__(
        self, options: LogHubSource.Options, logstore: Logstore, shards: Shards, outlet: Outlet, stop: Stop
    ) -> None:
        self._options, self._logstore, self._shards = options, logstore, shards
        self._outlet, self._stop = outlet, stop
        self._next: dict[str, int] = {}
        self._stops: dict[str, list[int]] = {}

    def look(self) -> bool:
        """Pull each shard once, and put what is new; return True if anything was put."""
        wanted = self._shards.wanted()
        for shard in [shard for shard in self._next if shard not in wanted]:
            self._release(shard)
        moved = False
        for shard in wanted:
            if self._stop.is_set():
                break
            if shard not in self._next:
                self._begin(shard)
            moved = self._advance(shard) or moved
        self._shards.note(self._safe(self._next))
        return moved

    def end(self) -> None:
        """Save the last checkpoints."""
        try:
            self._shards.note(self._safe(self._next), at_once=True)
        except LogHubReadError as error:
            _log.warning("source %s: the last checkpoint was not saved: %s", self._options.logstore, error)

    def _begin(self, shard: str) -> None:
        """Begin a shard at the channels' position. A position is the number of a LogGroup plus 1; 0 means that there is
        none.
        """
        ends = self._outlet.ends(_name(shard))
        first = self._shards.begin(shard, ends[0] - 1) + 1
        if first > ends[0]:
            self._outlet.pass_over(Position(_name(shard), first))
            ends = self._outlet.ends(_name(shard))
        self._next[shard] = ends[0] - 1
        self._stops[shard] = [end - 1 for end in ends[1:]]

    def _release(self, shard: str) -> None:
        self._shards.note(self._safe([shard]), at_once=True)
        self._shards.release(shard)
        del self._next[shard], self._stops[shard]

    def _safe(self, shards: Collection[str]) -> dict[str, int]:
        ends = {shard: self._outlet.safe_end(_name(shard)) - 1 for shard in shards}
        return {shard: end for shard, end in ends.items() if end >= 0}

    def _advance(self, shard: str) -> bool:
        """Put the new logs of a shard; return True if there were any."""
        try:
            return self._advance_by(shard, self._options.groups)
        except LogGroupTooLargeError:
            return self._advance_by(shard, 1)

    def _advance_by(self, shard: str, count: int) -> bool:
        number = self._next[shard]
        groups, following = self._logstore.pull(shard, number, count)
        if following - number != len(groups):  # LogHub skipped numbers, so those of the LogGroups are unknown
            stops, ends = [], [following] * len(groups)
        else:
            stops, ends = self._stops[shard], list(range(number + 1, following + 1))
        stop = self._shards.stop(self._stop)
        for events, end in self._parts(groups, ends, stops):
            if events and not self._outlet.put_until(_batch(events, Position(_name(shard), end + 1)), stop):
                return False
            self._next[shard] = end
        self._next[shard] = following  # includes skipped numbers
        return following != number

    def _parts(
        self, groups: Sequence[bytes], ends: Sequence[int], stops: Sequence[int]
    ) -> Iterator[tuple[list[Event], int]]:
        """Yield the events of whole LogGroups in batches of limited size, with the number after them."""
        events: list[Event] = []
        reckoning = Reckoning(self._check)
        size = 0
        for at, (group, end) in enumerate(zip(groups, ends, strict=True), 1):
            shared = None
            for event in self._events(group, reckoning):
                if shared is None:  # texts shared by all events of the LogGroup
                    shared = size_of({name: text for name, text in event[0].items() if name.startswith(_OF_GROUP)})
                    size += shared
                events.append(event)
                size += of_event(*event) - shared
                self._check(size)
            following = ends[at] if at < len(ends) else None
            if following is None or (following != end and (size >= _BATCH_BYTES or end in stops)):
                yield events, end
                events, size = [], 0

    def _events(self, group: bytes, reckoning: Reckoning) -> Iterator[Event]:
        tags = 0

        def before(data: bytes, is_log: bool) -> None:
            nonlocal tags
            if is_log:
                reckoning.element(_cost_of(data))
            else:
                tags += _OF_FIELD + OF_TEXT * len(data)
                self._check(tags)

        for log in read_group(group, before):
            yield self._event(log)

    def _check(self, size: int) -> None:
        """:raises LogGroupTooLargeError: the bytes exceed the limit."""
        most = self._options.max_memory // _SHARE
        if size > most:
            raise LogGroupTooLargeError(
                f"the events of a LogGroup of {self._options.logstore} need more than {most} bytes of memory: "
                f"raise max_memory to more than {_SHARE} times this size"
            )

    def _event(self, log: Fields) -> Event:
        seconds, nanos = log.pop("__time__", "0"), log.pop("__time_ns_part__", "0")
        meta = {name: log.pop(name) for name in list(log) if name.startswith(_OF_GROUP)}
        headers = {name: value for name, value in meta.items() if value}
        headers["timestamp"] = str(int(seconds) * 1000 + int(nanos) // 1_000_000)
        body = log.pop(self._options.field, None)
        if body is None:
            return headers, json.dumps(log, ensure_ascii=False).encode(errors="surrogatepass")
        if "timestamp" in log:  # keep both
            log["field_timestamp"] = log.pop("timestamp")
        return {**log, **headers}, body.encode(errors="surrogatepass")


def _batch(events: list[Event], position: Position) -> EventBatch:
    """Make a batch, and empty the list: its events are many times as large as the batch, which may wait."""
    batch = EventBatch.of_events(events, position)
    events.clear()
    return batch


def _cost_of(log: bytes) -> int:
    """Return the maximum bytes of a log's objects; 0 for a small log, which is not counted."""
    if len(log) <= SMALL:
        return 0
    return sum(
        _OF_FIELD + 2 * sum(of_text(text) for _, text in fields_of(field) if isinstance(text, bytes))
        for _, field in fields_of(log)
        if isinstance(field, bytes)
    )


def _name(shard: str) -> str:
    return f"shard-{shard}"
