"""Topics of Kafka, as a member of a consumer group.

Offsets are committed to Kafka after the channels have committed the messages: after a death messages may come twice,
and none is lost. A channel that is full stops the reading, and the membership goes on: the client is asked for nothing
but news of the group meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import ConfigError
from ...loggers import get_logger
from ..batch import EventBatch
from ..interfaces import Context, Outlet, Stop
from ..options import option

_log = get_logger("producer.agent.kafka")


class KafkaSource:
    """See the module."""

    endless = True

    needs: ClassVar = {"confluent_kafka": "kafka"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's Kafka source's.

        :raises ConfigError: neither topics nor a pattern, or both.
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

        @staticmethod
        def translate_flume(values: Mapping[str, str]) -> Mapping[str, Any]:
            """Flume's lists of topics have commas."""
            topics = values.get("kafka.topics")
            return values if topics is None else {**values, "kafka.topics": topics.replace(",", " ")}

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
        consumer = self._consumer()
        try:
            pattern = self._options.topics_regex
            consumer.subscribe(list(self._options.topics) if pattern is None else [f"^{pattern.removeprefix('^')}"])
            while not stop.is_set():
                messages = consumer.consume(self._options.batch_size, timeout=self._options.batch_duration)
                found = [message for message in messages if self._is_message(message)]
                if found and not self._put(consumer, found, outlet, stop):
                    return
        finally:
            consumer.close()

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer  # noqa: PLC0415  # nobody else needs it

        options = self._options
        settings: dict[str, Any] = {
            "bootstrap.servers": options.bootstrap_servers,
            "group.id": options.group_id,
            "client.id": f"{self._context.agent}-{self._context.name}",
            "auto.offset.reset": "earliest",  # a group that is new reads what is there
            **options.config,
            "enable.auto.commit": False,
        }
        return Consumer(settings, logger=_log)

    def _put(self, consumer: Any, messages: Sequence[Any], outlet: Outlet, stop: Stop) -> bool:
        """Put messages, and commit their offsets; False if it had to stop before."""
        if not outlet.put_until(self._batch(messages), _Member(consumer, stop)):
            return False
        self._commit(consumer, messages)
        return True

    def _batch(self, messages: Sequence[Any]) -> EventBatch:
        columns: dict[str, list[str | None]] = {
            "partition": [str(message.partition()) for message in messages],
            "offset": [str(message.offset()) for message in messages],
            "timestamp": [_time_of(message) for message in messages],
        }
        if self._options.set_topic_header:
            columns[self._options.topic_header] = [message.topic() for message in messages]
        keys = [message.key() for message in messages]
        if any(key is not None for key in keys):
            columns["key"] = [None if key is None else key.decode(errors="backslashreplace") for key in keys]
        names = dict.fromkeys(name for message in messages for name, _ in message.headers() or ())
        for name in names:
            if name not in columns:
                columns[name] = [_header_of(message, name) for message in messages]
        shared = {
            name: values[0] for name, values in columns.items() if values[0] is not None and len(set(values)) == 1
        }
        rest = {name: values for name, values in columns.items() if name not in shared}
        return EventBatch.of_bodies([message.value() or b"" for message in messages], shared, rest)

    def _commit(self, consumer: Any, messages: Sequence[Any]) -> None:
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415

        ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            _log.warning(
                "source %s: the group was not told of %d messages, which may come again: %s",
                *(self._context.name, len(messages), error),
            )

    def _is_message(self, message: Any) -> bool:
        """Whether it is one; an error that may pass is told.

        :raises KafkaException: the client is of no use any more.
        """
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

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
                self._consumer.seek(_place_of(message))
            return self._outer.wait(seconds)
        finally:
            still = self._consumer.assignment()
            self._consumer.resume(still)


def _place_of(message: Any) -> Any:
    from confluent_kafka import TopicPartition  # noqa: PLC0415

    return TopicPartition(message.topic(), message.partition(), message.offset())


def _time_of(message: Any) -> str | None:
    kind, milliseconds = message.timestamp()
    return str(milliseconds) if kind else None


def _header_of(message: Any, name: str) -> str | None:
    values = [value for other, value in message.headers() or () if other == name]
    return values[-1].decode(errors="backslashreplace") if values and values[-1] is not None else None
