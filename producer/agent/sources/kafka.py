"""Topics of Kafka, read as a member of a consumer group.

A batch has messages of one partition, and its position is their offsets (:mod:`..ledger`). Messages that Kafka delivers
again after a crash are skipped if a file channel has them. The group's offset moves only past messages that are safe in
the channels (:meth:`~..interfaces.Outlet.safe_end`); the first offset of a partition is committed, too. So a partition
without an offset in the group is a new one, even if the channels have a position of that name. The same holds for a
partition that Kafka delivers from a lower offset than before: its topic was made again, or lost its end.

While a channel is full nothing is read. The client is still polled for events of the group, so it remains a member.

The file is long because messages, rebalances and offsets share the state of each partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Stop
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..config.flume_keys import renamed
from ..events.batch import EventBatch, Position
from ..events.interfaces import Context, Lag, Outlet
from ..protocols.fields import unique_names, with_own
from ..protocols.kafka import ClientLog, RenewedClient, check_settings, missing_files

_log = get_logger("loghub.agent.kafka")

#: Seconds for Kafka to return the offsets of a group.
_PATIENCE = 30.0
#: Flume's options without effect: the client waits for messages itself, and is not Java's.
_NEEDLESS = (
    *("backoffSleepIncrement", "maxBackoffSleep"),
    *(f"kafka.consumer.{each}" for each in ("key.deserializer", "max.poll.records", "value.deserializer")),
)
#: Bytes of a batch as message objects, roughly.
_BATCH_BYTES = 8 << 20
#: Bytes of a header's objects, besides its texts, which exist as pairs and as headers of an event.
_OF_HEADER = 200
#: Maximum bytes of objects for each byte of a message, besides its bytes in the batch.
_OF_BYTE = 64
#: Maximum bytes of a message, if the client's settings have none.
_MESSAGE = 1 << 20
#: KiB of fetched messages that the client keeps, if its settings have no limit.
_QUEUED = 16 << 10
#: Topic and partition number.
_Place = tuple[str, int]


class KafkaSource:
    """Source of Kafka messages, read as a member of a consumer group."""

    endless = True

    needs: ClassVar = {"confluent_kafka": "kafka"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's Kafka source.

        :raises ConfigError: neither topics nor a pattern, or both; or the client refuses its settings.
        """

        bootstrap_servers: str = option(flume="kafka.bootstrap.servers", doc="brokers, host:port, separated by commas")
        topics: tuple[str, ...] = option((), flume="kafka.topics", doc="topics to read")
        topics_regex: str | None = option(None, flume="kafka.topics.regex", doc="pattern of topics, instead of topics")
        group_id: str = option("flume", flume="kafka.consumer.group.id", doc="consumer group")
        batch_size: int = option(1000, least=1, doc="maximum number of messages put at once")
        batch_duration: float = option(
            1.0, flume="batchDurationMillis", scale=0.001, least=0.01, doc="seconds that a batch waits for messages"
        )
        set_topic_header: bool = option(True, doc="add a header with the topic")
        topic_header: str = option("topic", doc="header for the topic")
        config: Mapping[str, str] = option({}, secret=True, flume="kafka.consumer", doc="settings of librdkafka")

        def __post_init__(self) -> None:
            if bool(self.topics) == bool(self.topics_regex):
                raise ConfigError("topics", "give either topics or topics_regex", self.topics_regex or ())
            check_settings("Consumer", self.settings("check"))

        def missing(self) -> Iterator[ConfigError]:
            """Yield an error for each file that cannot be read."""
            return missing_files(self.config)

        def holds(self) -> int:
            """Return the maximum bytes held: fetched messages, a batch twice, and the objects of its last message."""
            given = self.settings("check")
            message = int(given.get("fetch.message.max.bytes", _MESSAGE))
            return (int(given["queued.max.messages.kbytes"]) << 10) + 2 * _BATCH_BYTES + _OF_BYTE * message

        def settings(self, client: str) -> dict[str, Any]:
            """Return the settings of the client.

            :param client: the client's name.
            """
            return {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.group_id,
                "client.id": client,
                "queued.max.messages.kbytes": _QUEUED,
                "auto.offset.reset": "earliest",  # a new group reads all existing messages
                **self.config,
                "enable.auto.commit": False,
            }

        @staticmethod
        def translate_flume(values: Mapping[str, str]) -> Mapping[str, Any]:
            """Split Flume's comma-separated topics, and rename options of older versions."""
            needless = _NEEDLESS if "zookeeperConnect" in values else (*_NEEDLESS, "migrateZookeeperOffsets")
            found = renamed(values, {"topic": "kafka.topics", "groupId": "kafka.consumer.group.id"}, needless)
            if "kafka.topics" in found:
                found["kafka.topics"] = found["kafka.topics"].replace(",", " ")
            return found

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context
        self._reading: _Reading | None = None

    def lag(self) -> Lag:
        return Lag(events=0 if self._reading is None else self._reading.behind)

    def run(self, outlet: Outlet, stop: Stop) -> None:
        context = self._context
        clients = RenewedClient(self._consumer, self._options.config, f"source {context.name}", context)
        consumer = clients.first()
        while consumer is not None:
            with closing(consumer):
                self._reading = reading = _Reading(self._options, context, consumer, outlet, stop)
                reading.join()
                consumer = None
                while consumer is None and not stop.is_set() and reading.look():
                    consumer = clients.renewed()

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer  # an extra

        context = self._context
        return Consumer(self._options.settings(f"{context.agent}-{context.name}"), logger=ClientLog(context.clock))


@dataclass(slots=True, eq=False)
class _Share:
    """A partition, from its assignment to this member until it is revoked.

    :ivar noted: the group's offset; None if it has none.
    :ivar next: the lowest offset that is expected.
    :ivar begun: the first delivered offset, if the group had no offset.
    """

    place: _Place
    noted: int | None
    next: int
    begun: int | None = None


class _Reading:
    """One run of the source.

    :ivar behind: known number of messages of the assigned partitions that were not put.
    :ivar _shares: the partitions assigned to this member.
    """

    def __init__(
        self, options: KafkaSource.Options, context: Context, consumer: Any, outlet: Outlet, stop: Stop
    ) -> None:
        self._options, self._context, self._consumer = options, context, consumer
        self._outlet, self._stop = outlet, stop
        self._member = _Member(consumer, stop)
        self._shares: dict[_Place, _Share] = {}
        self.behind = 0
        self._repeated = RateLimitedLog(context.clock)

    def join(self) -> None:
        """Join the group."""
        pattern = self._options.topics_regex
        topics = list(self._options.topics) if pattern is None else [f"^{pattern.removeprefix('^')}"]
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def look(self) -> bool:
        """Put the messages that have arrived; return False if the source stops."""
        messages = self._messages()
        runs = self._runs(filter(self._is_message, messages))
        self.behind = self._unread()
        done = all(self._put(share, run) for share, run in runs)
        self.behind = self._unread()
        self._commit(self._shares)
        return done

    def _messages(self) -> list[Any]:
        """Return arrived messages, fetched one by one: each may have megabytes, and its headers' objects far more."""
        found: list[Any] = []
        size, until = 0, self._context.clock.monotonic() + self._options.batch_duration
        while len(found) < self._options.batch_size and size < _BATCH_BYTES:
            left = max(0.0, until - self._context.clock.monotonic())
            more = self._consumer.consume(1, timeout=left)
            if not more:
                break
            found += more
            size += sum(map(_size_of, more))
        return found

    def _unread(self) -> int:
        """Count unread messages by the offsets that came with the last ones, without a request."""
        from confluent_kafka import KafkaException

        unread = 0
        for place, share in list(self._shares.items()):
            with suppress(KafkaException):  # the partition is being revoked
                low, high = self._consumer.get_watermark_offsets(_partition(place), cached=True)
                unread += max(0, high - max(low, share.next, self._outlet.ends(self._name(place))[-1]))
        return unread

    def _runs(self, messages: Iterable[Any]) -> list[tuple[_Share, list[Any]]]:
        """Group messages by partition, in order of their offsets; an offset that does not rise starts another group."""
        runs: list[tuple[_Share, list[Any]]] = []
        newest: dict[_Place, list[Any]] = {}
        for message in messages:
            place = message.topic(), message.partition()
            run = newest.get(place)
            if place in self._shares and (run is None or message.offset() <= run[-1].offset()):
                run = newest[place] = []
                runs.append((self._shares[place], run))
            if run is not None:
                run.append(message)
        return runs

    def _put(self, share: _Share, messages: Sequence[Any]) -> bool:
        place, first = share.place, messages[0].offset()
        if self._shares.get(place) is not share:  # revoked while a channel was full
            return True
        if first < share.next:
            self._begin_anew(share, first)
        share.next = messages[-1].offset() + 1
        if share.noted is None:  # an earlier commit may have failed
            share.begun = first if share.begun is None else share.begun
            self._commit_offsets({place: share.begun})
        name = self._name(place)
        for part in _parts(messages, self._outlet.ends(name)):
            batch = self._batch(part, Position(name, part[-1].offset() + 1))
            if not self._outlet.put_until(batch, self._member):
                return False
        return True

    def _begin_anew(self, share: _Share, first: int) -> None:
        """Read a partition as a new one: Kafka delivers a lower offset than expected."""
        share.noted = share.begun = None
        end = self._outlet.ends(self._name(share.place))[-1]
        if end > first:
            self._warn_anew(share.place, end, f"Kafka delivers offset {first}, and {share.next} was expected")
            self._outlet.forget(self._name(share.place))

    def _name(self, place: _Place) -> str:
        """Return the position's name; another group may belong to another cluster."""
        topic, partition = place
        return f"{self._options.group_id}/{topic}-{partition}"

    # Callbacks for events of the group; the client calls them while it is polled.
    def _assigned(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        from confluent_kafka import KafkaException

        if not partitions:
            return
        for known in self._consumer.committed(partitions, timeout=_PATIENCE):
            if known.error is not None:
                raise KafkaException(known.error)
            place, offset = (known.topic, known.partition), known.offset if known.offset >= 0 else None
            end = self._outlet.ends(self._name(place))[-1]
            if end > (offset or 0) and not self._is_same_partition(place, offset, end):
                self._outlet.forget(self._name(place))
            self._shares[place] = _Share(place, offset, offset or 0)

    def _is_same_partition(self, place: _Place, offset: int | None, end: int) -> bool:
        """Return True if a partition whose position in the channels is ahead of the group's is still the same one."""
        if offset is None:
            self._warn_anew(place, end, "the group has no offset for it")
            return False
        last = self._consumer.get_watermark_offsets(_partition(place), timeout=_PATIENCE)[1]
        if last < end:
            self._warn_anew(place, end, f"it ends at offset {last}")
            return False
        tell = _log.info if end - offset <= self._options.batch_size else _log.warning
        tell(
            "source %s: the channels have partition %d of %s up to offset %d, the group %s up to %d: messages"
            " between these offsets are skipped. To read them again, give the source another name, or another group_id",
            *(self._context.name, place[1], place[0], end, self._options.group_id, offset),
        )
        return True

    def _warn_anew(self, place: _Place, end: int, why: str) -> None:
        _log.warning(
            "source %s: the channels have partition %d of %s up to offset %d, but %s: reading it as a new partition",
            *(self._context.name, place[1], place[0], end, why),
        )

    def _revoked(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        self._commit([(each.topic, each.partition) for each in partitions])
        self._lost(_consumer, partitions)

    def _lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        for each in partitions:
            self._shares.pop((each.topic, each.partition), None)

    def _commit(self, places: Iterable[_Place]) -> None:
        """Commit the offsets up to which messages are safe, if they have changed."""
        safe = {place: self._outlet.safe_end(self._name(place)) for place in places if place in self._shares}
        news = {place: end for place, end in safe.items() if end > (self._shares[place].noted or 0)}
        if news:
            self._commit_offsets(news)

    def _commit_offsets(self, ends: Mapping[_Place, int]) -> None:
        from confluent_kafka import KafkaException

        try:
            self._consumer.commit(offsets=[_partition(place, end) for place, end in ends.items()], asynchronous=False)
        except KafkaException as error:
            more = self._repeated.due_error(error)  # during a rebalance each poll tries it again
            if more is not None:
                _log.warning(
                    "source %s: offsets of %d partitions are not committed to the group yet: %s%s",
                    *(self._context.name, len(ends), error, more),
                )
        else:
            for place, end in ends.items():
                if place in self._shares:  # a rebalance may have revoked it during the commit
                    self._shares[place].noted = end

    def _batch(self, messages: Sequence[Any], position: Position) -> EventBatch:
        return EventBatch.of_events([(self._headers(each), each.value() or b"") for each in messages], position)

    def _headers(self, message: Any) -> dict[str, str]:
        """Return a message's headers and the source's own; ``columns_of`` shares those that all events have."""
        own = {"partition": str(message.partition()), "offset": str(message.offset())}
        time, key = _time_of(message), message.key()
        if time is not None:
            own["timestamp"] = time
        if self._options.set_topic_header:
            own[self._options.topic_header] = message.topic()
        if key is not None:
            own["key"] = key.decode(errors="backslashreplace")
        given = message.headers()
        if not given:
            return own
        named = unique_names([(name, value) for name, value in given if value is not None])
        return with_own({name: value.decode(errors="backslashreplace") for name, value in named.items()}, own)

    def _is_message(self, message: Any) -> bool:
        """Return True for a message; log a transient error.

        :raises KafkaException: the client has failed permanently.
        """
        from confluent_kafka import KafkaError, KafkaException

        error = message.error()
        if error is None:
            return True
        if error.fatal():
            raise KafkaException(error)
        if error.code() != KafkaError._PARTITION_EOF:
            _log.warning("source %s: %s", self._context.name, error)
        return False


class _Member(Stop):
    """Stop signal whose wait also polls the client, so that it remains a member while a channel is full."""

    def __init__(self, consumer: Any, stop: Stop) -> None:
        super().__init__(outer=stop)
        self._consumer = consumer

    def wait(self, seconds: float | None = None) -> bool:
        assigned = self._consumer.assignment()
        self._consumer.pause(assigned)
        try:
            message = self._consumer.poll(0)
            if message is not None and message.error() is None:  # of a partition assigned during the poll
                self._consumer.seek(_partition((message.topic(), message.partition()), message.offset()))
            return super().wait(seconds)
        finally:
            still = self._consumer.assignment()
            self._consumer.resume(still)


def _parts(messages: Sequence[Any], ends: Sequence[int]) -> Iterator[Sequence[Any]]:
    """Yield the messages that some channel lacks, split at the channels' positions."""
    offsets = [message.offset() for message in messages]
    cuts = [bisect_left(offsets, end) for end in ends]
    for start, end in pairwise((*cuts, len(messages))):
        if start < end:
            yield messages[start:end]


def _partition(place: _Place, offset: int | None = None) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(*place) if offset is None else TopicPartition(*place, offset)


def _size_of(message: Any) -> int:
    """Return the bytes of a message's objects."""
    own = len(message.value() or b"") + len(message.key() or b"")
    return own + sum(
        _OF_HEADER + 2 * len(name or "") + 2 * len(value or b"") for name, value in message.headers() or ()
    )


def _time_of(message: Any) -> str | None:
    kind, milliseconds = message.timestamp()
    return str(milliseconds) if kind else None
