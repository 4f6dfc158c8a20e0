"""Kafka, by librdkafka: idempotent, and acknowledged by all replicas in sync, unless its settings say otherwise.

A body is a message's value, and headers are its headers; the header ``topic`` chooses another topic, ``key`` the
message's key. Where an answer is lost the client itself sends again, under numbers that the broker knows; what is
delivered again after a death of this process may be stored twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Deadline
from ...text.printable import shown
from ..config.flume_keys import renamed
from ..events.batch import EventBatch
from ..events.interfaces import Context, Refusal, RefusedError, SinkError
from ..protocols.kafka import ClientLog, RenewedClient, check_settings, missing_files

_POLL_SECONDS = 0.1
_HEADER = re.compile(r"%\{([^}]+)\}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ALL_REPLICAS = ("all", "-1")
#: Settings of Java's client.
_NEEDLESS = tuple(f"kafka.producer.{each}" for each in ("buffer.memory", "key.serializer", "value.serializer"))
#: Keys of Flume 1.6, and later ones.
_OLD = {
    "brokerList": "kafka.bootstrap.servers",
    "topic": "kafka.topic",
    "batchSize": "flumeBatchSize",
    "requiredAcks": "kafka.producer.acks",
}
#: Of a partition's number fewer; more the client cannot be given.
_DIGITS = 10


def _is_of_all(settings: Mapping[str, str]) -> bool:
    """Whether all replicas acknowledge: otherwise the client has no numbers."""
    return settings.get("acks", settings.get("request.required.acks", "all")).lower() in _ALL_REPLICAS


class KafkaSink:
    """See the module."""

    needs: ClassVar = {"confluent_kafka": "kafka"}
    most_bytes = 8 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's Kafka sink's.

        :raises ConfigError: the client does not take its settings.
        """

        bootstrap_servers: str = option(flume="kafka.bootstrap.servers", doc="brokers, host:port, by commas")
        topic: str = option("default-flume-topic", flume="kafka.topic", doc="the topic; %{name} is a header")
        allow_topic_override: bool = option(True, doc="let a header choose the topic")
        topic_header: str = option("topic", doc="that header")
        key_header: str = option("key", doc="the header with a message's key")
        partition_id_header: str | None = option(None, doc="the header with the number of a partition")
        default_partition_id: int | None = option(None, least=0, doc="the partition of events without such a header")
        headers: bool = option(True, doc="send headers with the messages")
        batch_size: int = option(10_000, flume="flumeBatchSize", least=1, doc="events delivered at once, at most")
        timeout: float = option(120.0, least=1, doc="seconds that a delivery may take")
        config: Mapping[str, str] = option({}, secret=True, flume="kafka.producer", doc="settings of librdkafka")

        def __post_init__(self) -> None:
            check_settings("Producer", self.settings("check"))

        def missing(self) -> Iterator[ConfigError]:
            """Files that cannot be read."""
            return missing_files(self.config)

        def settings(self, client: str) -> dict[str, Any]:
            """Of the client, idempotent unless fewer replicas shall acknowledge.

            :param client: its name.
            """
            return {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": client,
                "enable.idempotence": _is_of_all(self.config),
                "acks": "all",
                "delivery.timeout.ms": int(self.timeout * 1000),
                **self.config,
            }

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Older versions had other keys."""
            return renamed(texts, _OLD, _NEEDLESS)

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context, self._clock = options, context, context.clock
        self.most_events = options.batch_size
        self._clients = RenewedClient(self._client, options.config, f"sink {context.name}", context)
        self._producer = self._clients.first()
        self._end: Deadline | None = None

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~..interfaces.Sink`."""
        renewed = self._clients.renewed()  # the one before has nothing on its way
        self._producer = self._producer if renewed is None else renewed
        outcomes: dict[int, dict[int, _Failure]] = defaultdict(dict)
        deadline = Deadline.after(self._clock, self._options.timeout)
        for number, batch in enumerate(batches):
            self._produce(batch, outcomes[number], deadline)
        left = self._flushed(deadline)
        if left:
            self._producer.purge()
            limit = "before the sink had to end" if self._ends() else f"within {self._options.timeout:.0f} s (timeout)"
            raise SinkError(f"{left} messages were not acknowledged {limit}")
        self._judge(batches, outcomes)

    def give_up(self, deadline: Deadline) -> None:
        """See :class:`~..interfaces.Sink`."""
        self._end = deadline

    def close(self) -> None:
        """See :class:`~..interfaces.Sink`."""
        self._producer.purge()
        self._producer.flush(_POLL_SECONDS)

    def _client(self) -> Any:
        from confluent_kafka import Producer  # nobody else needs it

        name = f"{self._context.agent}-{self._context.name}"
        return Producer(self._options.settings(name), logger=ClientLog(self._clock))

    def _ends(self) -> bool:
        return self._end is not None and self._end.expired(self._clock)

    def _flushed(self, deadline: Deadline) -> int:
        """How many messages are not acknowledged in time."""
        left: int = self._producer.flush(0.0)
        while left and not deadline.expired(self._clock) and not self._ends():
            left = self._producer.flush(min(_POLL_SECONDS, deadline.remaining(self._clock) or 0.0))
        return left

    def _produce(self, batch: EventBatch, failures: dict[int, _Failure], deadline: Deadline) -> None:
        """Hand the events of a batch to the client; what fails comes into ``failures``, by its place."""
        options = self._options
        for place, (headers, body) in enumerate(batch.events()):
            topic = headers.get(options.topic_header) if options.allow_topic_override else None
            partition = headers.get(options.partition_id_header, "") if options.partition_id_header else ""
            message: dict[str, Any] = {
                "topic": topic or self._topic(headers),
                "value": body,
                "key": headers.get(options.key_header),
            }
            number = int(partition) if partition.isdecimal() and len(partition) < _DIGITS else None
            if number is not None or options.default_partition_id is not None:
                message["partition"] = options.default_partition_id if number is None else number
            if options.headers:
                message["headers"] = [(name, value.encode(errors="surrogatepass")) for name, value in headers.items()]
            own = message["topic"] != options.topic
            if own and not _is_topic(message["topic"]):
                failures[place] = _Failure(f"Kafka has no topics of such a name: {shown(message['topic'][:300])}", own)
                continue
            self._hand_over(message, _told(failures, place, own), deadline)

    def _topic(self, headers: Mapping[str, str]) -> str:
        return _HEADER.sub(lambda found: headers.get(found[1], ""), self._options.topic)

    def _hand_over(self, message: dict[str, Any], told: Callable[[Any, Any], None], deadline: Deadline) -> None:
        from confluent_kafka import KafkaError, KafkaException

        while True:
            try:
                self._producer.produce(**message, on_delivery=told)
                return
            except BufferError as error:  # the client's queue is full
                if deadline.expired(self._clock) or self._ends():
                    self._producer.purge()
                    raise SinkError(f"no room in the client's queue within {self._options.timeout:.0f} s") from error
                self._producer.poll(_POLL_SECONDS)
            except KafkaException as error:
                fault = error.args[0]
                told(str(fault) if fault.code() == KafkaError.MSG_SIZE_TOO_LARGE else fault, None)
                return

    def _judge(self, batches: Sequence[EventBatch], outcomes: Mapping[int, Mapping[int, _Failure]]) -> None:
        """Raise what the failures come to."""
        refusals, later, reason = list[Refusal](), list[EventBatch](), ""
        for number, batch in enumerate(batches):
            failures = outcomes[number]
            if all(map(_is_for_good, failures.values())):
                refusals += _refusals(batch, failures)
            else:
                later.append(batch)
                reason = reason or next(failure.reason for failure in failures.values() if not _is_for_good(failure))
        if refusals:
            raise RefusedError.of(refusals, later)
        if later:
            raise SinkError(reason, later)


class _Failure(NamedTuple):
    """Why an event was not stored.

    :ivar error: the client's, or why the client was not asked.
    :ivar own: whether the event has chosen its topic.
    """

    error: Any
    own: bool

    @property
    def reason(self) -> str:
        """The error's words."""
        return str(self.error)

    @property
    def is_local(self) -> bool:
        """True if no broker was asked."""
        return isinstance(self.error, str)


def _refusals(batch: EventBatch, failures: Mapping[int, _Failure]) -> Iterator[Refusal]:
    """The events of a batch that can never be stored, those of the same reason together."""
    whys = {place: (failure.reason, failure.is_local) for place, failure in failures.items()}
    for why in dict.fromkeys(whys.values()):
        reason, is_local = why
        part = batch.part([whys.get(place) == why for place in range(batch.count)])
        yield Refusal(part, reason, undeliverable=is_local, attempts=int(not is_local))


def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _told(failures: dict[int, _Failure], place: int, own: bool) -> Callable[[Any, Any], None]:
    def told(error: Any, _message: Any) -> None:
        if error is not None:
            failures[place] = _Failure(error, own)

    return told


def _is_for_good(failure: _Failure) -> bool:
    """Whether the broker will never take the message."""
    if failure.is_local:
        return True
    from confluent_kafka import KafkaError

    never = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD, KafkaError._INVALID_ARG}
    # A header that names a partition or a topic which is not there would keep up all that comes behind it.
    if failure.own:
        never |= {KafkaError.TOPIC_EXCEPTION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
        never.add(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    return failure.error.code() in never | {KafkaError._UNKNOWN_PARTITION}
