"""Topics of Kafka, as a member of a consumer group.

A batch is of one partition, and its offsets are its position (:mod:`..ledger`): what a channel on the disk has when
the agent dies is passed over when Kafka gives it again. The group is told of what nobody can lose any more
(:meth:`~..interfaces.Outlet.safe_end`), and where each partition was begun: a partition of which it knows nothing is
another one than that of which the channels know. So is one that Kafka gives from a lower offset on than where it was:
a topic that was made again, or lost its end.

A channel that is full stops the reading, and the membership goes on: the client is asked for nothing but news of the
group meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
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

#: Seconds that Kafka has to say how far a group came.
_PATIENCE = 30.0
#: Of Flume's keys those that change nothing: the client waits for messages itself, and is none of Java's.
_NEEDLESS = (
    *("backoffSleepIncrement", "maxBackoffSleep"),
    *(f"kafka.consumer.{each}" for each in ("key.deserializer", "max.poll.records", "value.deserializer")),
)
#: Bytes of a batch, about, as the objects of its messages.
_BATCH_BYTES = 8 << 20
#: Bytes of the objects of a header, beside its texts: they are there as pairs, and as headers of an event.
_OF_HEADER = 200
#: Bytes that a message becomes by each of its own, at most, beside what a batch has.
_OF_BYTE = 64
#: Bytes of a message at most, where the client's settings do not say.
_MESSAGE = 1 << 20
#: KiB that the client keeps of what it has fetched, where its settings do not say.
_QUEUED = 16 << 10
#: Topic and number of a partition.
_Place = tuple[str, int]


class KafkaSource:
    """See the module."""

    endless = True

    needs: ClassVar = {"confluent_kafka": "kafka"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's Kafka source's.

        :raises ConfigError: neither topics nor a pattern, or both; or the client does not take its settings.
        """

        bootstrap_servers: str = option(flume="kafka.bootstrap.servers", doc="brokers, host:port, by commas")
        topics: tuple[str, ...] = option((), flume="kafka.topics", doc="topics")
        topics_regex: str | None = option(None, flume="kafka.topics.regex", doc="or a pattern of their names")
        group_id: str = option("flume", flume="kafka.consumer.group.id", doc="the consumer group")
        batch_size: int = option(1000, least=1, doc="messages put at once, at most")
        batch_duration: float = option(
            1.0, flume="batchDurationMillis", scale=0.001, least=0.01, doc="seconds that a batch waits for more"
        )
        set_topic_header: bool = option(True, doc="add a header with the topic")
        topic_header: str = option("topic", doc="that header")
        config: Mapping[str, str] = option({}, secret=True, flume="kafka.consumer", doc="settings of librdkafka")

        def __post_init__(self) -> None:
            if bool(self.topics) == bool(self.topics_regex):
                raise ConfigError("topics", "give either topics or topics_regex", self.topics_regex or ())
            check_settings("Consumer", self.settings("check"))

        def missing(self) -> Iterator[ConfigError]:
            """Files that cannot be read."""
            return missing_files(self.config)

        def holds(self) -> int:
            """Bytes at most: what the client has fetched, a batch twice, and the objects of its last message."""
            given = self.settings("check")
            message = int(given.get("fetch.message.max.bytes", _MESSAGE))
            return (int(given["queued.max.messages.kbytes"]) << 10) + 2 * _BATCH_BYTES + _OF_BYTE * message

        def settings(self, client: str) -> dict[str, Any]:
            """Of the client.

            :param client: its name.
            """
            return {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.group_id,
                "client.id": client,
                "queued.max.messages.kbytes": _QUEUED,
                "auto.offset.reset": "earliest",  # a group that is new reads what is there
                **self.config,
                "enable.auto.commit": False,
            }

        @staticmethod
        def translate_flume(values: Mapping[str, str]) -> Mapping[str, Any]:
            """Flume's lists of topics have commas; older versions had other keys."""
            needless = _NEEDLESS if "zookeeperConnect" in values else (*_NEEDLESS, "migrateZookeeperOffsets")
            found = renamed(values, {"topic": "kafka.topics", "groupId": "kafka.consumer.group.id"}, needless)
            if "kafka.topics" in found:
                found["kafka.topics"] = found["kafka.topics"].replace(",", " ")
            return found

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context
        self._reading: _Reading | None = None

    def lag(self) -> Lag:
        """See :class:`~..interfaces.Source`."""
        return Lag(events=0 if self._reading is None else self._reading.behind)

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
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
        from confluent_kafka import Consumer  # nobody else needs it

        context = self._context
        return Consumer(self._options.settings(f"{context.agent}-{context.name}"), logger=ClientLog(context.clock))


@dataclass(slots=True, eq=False)
class _Share:
    """A partition, from the moment when it becomes this member's until it is taken away.

    :ivar noted: the offset that the group has; None if it has none.
    :ivar next: no message is to come from before it.
    :ivar begun: the first offset that came of one of which the group knows nothing.
    """

    place: _Place
    noted: int | None
    next: int
    begun: int | None = None


class _Reading:
    """One run of the source.

    :ivar behind: messages that the brokers have of these partitions and that were not put, as far as is known.
    :ivar _shares: the partitions that are this member's.
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
        """Become a member of the group."""
        pattern = self._options.topics_regex
        topics = list(self._options.topics) if pattern is None else [f"^{pattern.removeprefix('^')}"]
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def look(self) -> bool:
        """Put what has come; False if it had to stop before."""
        messages = self._messages()
        runs = self._runs(filter(self._is_message, messages))
        self.behind = self._unread()
        done = all(self._put(share, run) for share, run in runs)
        self.behind = self._unread()
        self._commit(self._shares)
        return done

    def _messages(self) -> list[Any]:
        """What has come, one at a time: a message may have megabytes, and its headers' objects far more."""
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
        """By what the brokers said with the last messages: nobody is asked."""
        from confluent_kafka import KafkaException

        unread = 0
        for place, share in list(self._shares.items()):
            with suppress(KafkaException):  # it is being taken away
                low, high = self._consumer.get_watermark_offsets(_partition(place), cached=True)
                unread += max(0, high - max(low, share.next, self._outlet.ends(self._name(place))[-1]))
        return unread

    def _runs(self, messages: Iterable[Any]) -> list[tuple[_Share, list[Any]]]:
        """Messages by their partitions, those of each in order of their offsets; where an offset is not behind the one
        before, a run of its own begins.
        """
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
        if self._shares.get(place) is not share:  # it was dealt out anew while a channel had no room
            return True
        if first < share.next:
            self._begin_anew(share, first)
        share.next = messages[-1].offset() + 1
        if share.noted is None:  # it may be that the group could not be told before
            share.begun = first if share.begun is None else share.begun
            self._tell({place: share.begun})
        name = self._name(place)
        for part in _parts(messages, self._outlet.ends(name)):
            batch = self._batch(part, Position(name, part[-1].offset() + 1))
            if not self._outlet.put_until(batch, self._member):
                return False
        return True

    def _begin_anew(self, share: _Share, first: int) -> None:
        """Kafka gives a partition from before where it was: it is another one, or has lost its end."""
        share.noted = share.begun = None
        end = self._outlet.ends(self._name(share.place))[-1]
        if end > first:
            self._say_anew(share.place, end, f"Kafka gives it from offset {first} on, where it was at {share.next}")
            self._outlet.forget(self._name(share.place))

    def _name(self, place: _Place) -> str:
        """Of the position; another group may be that of another cluster."""
        topic, partition = place
        return f"{self._options.group_id}/{topic}-{partition}"

    # News of the group; called while the client is asked for messages.

    def _assigned(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        from confluent_kafka import KafkaException

        if not partitions:
            return
        for known in self._consumer.committed(partitions, timeout=_PATIENCE):
            if known.error is not None:
                raise KafkaException(known.error)
            place, offset = (known.topic, known.partition), known.offset if known.offset >= 0 else None
            end = self._outlet.ends(self._name(place))[-1]
            if end > (offset or 0) and not self._goes_on(place, offset, end):
                self._outlet.forget(self._name(place))
            self._shares[place] = _Share(place, offset, offset or 0)

    def _goes_on(self, place: _Place, offset: int | None, end: int) -> bool:
        """Whether a partition of which the channels have more than the group is still the one that they know."""
        if offset is None:
            self._say_anew(place, end, "the group has no offset there")
            return False
        last = self._consumer.get_watermark_offsets(_partition(place), timeout=_PATIENCE)[1]
        if last < end:
            self._say_anew(place, end, f"it ends at {last}")
            return False
        tell = _log.info if end - offset <= self._options.batch_size else _log.warning
        tell(
            "source %s: the channels have partition %d of %s up to offset %d, the group %s up to %d: what lies between "
            "is passed over. To read it again, give the source another name, or another group_id",
            *(self._context.name, place[1], place[0], end, self._options.group_id, offset),
        )
        return True

    def _say_anew(self, place: _Place, end: int, why: str) -> None:
        _log.warning(
            "source %s: the channels have partition %d of %s up to offset %d, but %s: it is read as a new one",
            *(self._context.name, place[1], place[0], end, why),
        )

    def _revoked(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        self._commit([(each.topic, each.partition) for each in partitions])
        self._lost(_consumer, partitions)

    def _lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        for each in partitions:
            self._shares.pop((each.topic, each.partition), None)

    def _commit(self, places: Iterable[_Place]) -> None:
        """Tell the group of what is safe, and what it does not know."""
        safe = {place: self._outlet.safe_end(self._name(place)) for place in places if place in self._shares}
        news = {place: end for place, end in safe.items() if end > (self._shares[place].noted or 0)}
        if news:
            self._tell(news)

    def _tell(self, ends: Mapping[_Place, int]) -> None:
        from confluent_kafka import KafkaException

        try:
            self._consumer.commit(offsets=[_partition(place, end) for place, end in ends.items()], asynchronous=False)
        except KafkaException as error:
            more = self._repeated.due_error(error)  # while a group is dealt out anew it is tried at each look
            if more is not None:
                _log.warning(
                    "source %s: offsets of %d partitions are not committed to the group yet: %s%s",
                    *(self._context.name, len(ends), error, more),
                )
        else:
            for place, end in ends.items():
                if place in self._shares:  # a rebalance may come while the group is told
                    self._shares[place].noted = end

    def _batch(self, messages: Sequence[Any], position: Position) -> EventBatch:
        return EventBatch.of_events([(self._headers(each), each.value() or b"") for each in messages], position)

    def _headers(self, message: Any) -> dict[str, str]:
        """Those of a message, and ours. What all of its batch have is a column's, or is not: see ``columns_of``."""
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
        """Whether it is one; an error that may pass is told.

        :raises KafkaException: the client is of no use any more.
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
    """Remains a member of the group while a channel has no room: asks the client for news, and for no messages."""

    def __init__(self, consumer: Any, stop: Stop) -> None:
        super().__init__()
        self._consumer, self._outer = consumer, stop

    def is_set(self) -> bool:
        return self._outer.is_set()

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        with self._outer.waking(wake):
            yield

    def wait(self, seconds: float | None = None) -> bool:
        assigned = self._consumer.assignment()
        self._consumer.pause(assigned)
        try:
            message = self._consumer.poll(0)
            if message is not None and message.error() is None:  # of a partition that is new
                self._consumer.seek(_partition((message.topic(), message.partition()), message.offset()))
            return self._outer.wait(seconds)
        finally:
            still = self._consumer.assignment()
            self._consumer.resume(still)


def _parts(messages: Sequence[Any], ends: Sequence[int]) -> Iterator[Sequence[Any]]:
    """What not all channels have, cut where one of them has it up to there."""
    offsets = [message.offset() for message in messages]
    cuts = [bisect_left(offsets, end) for end in ends]
    for start, end in pairwise((*cuts, len(messages))):
        if start < end:
            yield messages[start:end]


def _partition(place: _Place, offset: int | None = None) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(*place) if offset is None else TopicPartition(*place, offset)


def _size_of(message: Any) -> int:
    """Bytes of the objects of a message."""
    own = len(message.value() or b"") + len(message.key() or b"")
    return own + sum(
        _OF_HEADER + 2 * len(name or "") + 2 * len(value or b"") for name, value in message.headers() or ()
    )


def _time_of(message: Any) -> str | None:
    kind, milliseconds = message.timestamp()
    return str(milliseconds) if kind else None
