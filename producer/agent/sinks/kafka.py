"""Produce to Kafka by librdkafka: idempotent, and acknowledged by all replicas in sync, unless its settings differ.

The body is a message's value, and headers are its headers. The header ``topic`` selects another topic, and ``key`` the
message's key. If an answer is lost, the client sends again under a sequence number that the broker knows. Events that
are delivered again after a crash of this process may be stored twice.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Clock, Deadline
from ...text.printable import shown
from ..config.flume_keys import renamed
from ..events.batch import EventBatch
from ..events.interfaces import Context, Refusal, RefusedError, SinkError
from ..protocols.kafka import ClientLog, RenewedClient, check_settings, missing_files

_POLL_SECONDS = 0.1
_HEADER = re.compile(r"%\{([^}]+)\}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ALL_REPLICAS = ("all", "-1")
#: Settings of Java's client that have no effect here, and are ignored.
_NEEDLESS = tuple(f"kafka.producer.{each}" for each in ("buffer.memory", "key.serializer", "value.serializer"))
#: Options of Flume 1.6, and their later names.
_OLD = {
    "brokerList": "kafka.bootstrap.servers",
    "topic": "kafka.topic",
    "batchSize": "flumeBatchSize",
    "requiredAcks": "kafka.producer.acks",
}
#: A header with this many digits or more is not the number of a partition.
_DIGITS = 10


def _is_of_all(settings: Mapping[str, str]) -> bool:
    """Return True if all replicas acknowledge, which idempotence needs."""
    return settings.get("acks", settings.get("request.required.acks", "all")).lower() in _ALL_REPLICAS


class KafkaSink:
    """Sink that produces to Kafka: idempotent, and acknowledged by all replicas in sync by default."""

    needs: ClassVar = {"confluent_kafka": "kafka"}
    most_bytes = 8 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's Kafka sink.

        :raises ConfigError: the client refuses its settings.
        """

        bootstrap_servers: str = option(flume="kafka.bootstrap.servers", doc="brokers, host:port, separated by commas")
        topic: str = option("default-flume-topic", flume="kafka.topic", doc="topic; %{name} is replaced by a header")
        allow_topic_override: bool = option(True, doc="let a header select the topic")
        topic_header: str = option("topic", doc="header that selects the topic")
        key_header: str = option("key", doc="header for a message's key")
        partition_id_header: str | None = option(None, doc="header that selects the partition")
        default_partition_id: int | None = option(None, least=0, doc="partition of events without that header")
        headers: bool = option(True, doc="send headers with the messages")
        batch_size: int = option(10_000, flume="flumeBatchSize", least=1, doc="maximum events delivered at once")
        timeout: float = option(120.0, least=1, doc="seconds for a delivery")
        config: Mapping[str, str] = option({}, secret=True, flume="kafka.producer", doc="settings of librdkafka")

        def __post_init__(self) -> None:
            check_settings("Producer", self.settings("check"))

        def missing(self) -> Iterator[ConfigError]:
            """Yield an error for each file that cannot be read."""
            return missing_files(self.config)

        def settings(self, client: str) -> dict[str, Any]:
            """Return the client's settings: idempotent, unless fewer replicas acknowledge.

            :param client: the client's name.
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
            """Rename options of older versions."""
            return renamed(texts, _OLD, _NEEDLESS)

    @staticmethod
    def render_sample(options: Options, event: EventBatch, _clock: Clock) -> str:
        """Return the topic, the key and the value of an event's message, with its headers."""
        ((headers, body),) = event.events()
        message = _message(options, headers, body)
        texts = {name: value.decode(errors="backslashreplace") for name, value in message.get("headers", ())}
        return json.dumps(
            {**message, "value": body.decode(errors="backslashreplace"), "headers": texts}, ensure_ascii=False
        )

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context, self._clock = options, context, context.clock
        self.most_events = options.batch_size
        self._clients = RenewedClient(self._client, options.config, f"sink {context.name}", context)
        self._producer = self._clients.first()
        self._end: Deadline | None = None

    def write(self, batches: Sequence[EventBatch]) -> None:
        renewed = self._clients.renewed()  # the former client has no message in flight
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
        self._raise_failures(batches, outcomes)

    def give_up(self, deadline: Deadline) -> None:
        self._end = deadline

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(_POLL_SECONDS)

    def _client(self) -> Any:
        from confluent_kafka import Producer  # an extra

        name = f"{self._context.agent}-{self._context.name}"
        return Producer(self._options.settings(name), logger=ClientLog(self._clock))

    def _ends(self) -> bool:
        return self._end is not None and self._end.expired(self._clock)

    def _flushed(self, deadline: Deadline) -> int:
        """Wait for acknowledgements; return the number of messages without one."""
        left: int = self._producer.flush(0.0)
        while left and not deadline.expired(self._clock) and not self._ends():
            left = self._producer.flush(min(_POLL_SECONDS, deadline.remaining(self._clock) or 0.0))
        return left

    def _produce(self, batch: EventBatch, failures: dict[int, _Failure], deadline: Deadline) -> None:
        """Give the events of a batch to the client; record failures by the event's index."""
        for place, (headers, body) in enumerate(batch.events()):
            message = _message(self._options, headers, body)
            own = message["topic"] != self._options.topic
            if own and not _is_topic(message["topic"]):
                failures[place] = _Failure(f"invalid topic name: {shown(message['topic'][:300])}", own)
                continue
            self._enqueue(message, _recorder(failures, place, own), deadline)

    def _enqueue(self, message: dict[str, Any], record: Callable[[Any, Any], None], deadline: Deadline) -> None:
        from confluent_kafka import KafkaError, KafkaException

        while True:
            try:
                self._producer.produce(**message, on_delivery=record)
                return
            except BufferError as error:  # the client's queue is full
                if deadline.expired(self._clock) or self._ends():
                    self._producer.purge()
                    raise SinkError(f"no room in the client's queue within {self._options.timeout:.0f} s") from error
                self._producer.poll(_POLL_SECONDS)
            except KafkaException as error:
                fault = error.args[0]
                record(str(fault) if fault.code() == KafkaError.MSG_SIZE_TOO_LARGE else fault, None)
                return

    def _raise_failures(self, batches: Sequence[EventBatch], outcomes: Mapping[int, Mapping[int, _Failure]]) -> None:
        """Raise the error for the failures, if there are any."""
        refusals, later, reason = list[Refusal](), list[EventBatch](), ""
        for number, batch in enumerate(batches):
            failures = outcomes[number]
            if all(map(_is_permanent, failures.values())):
                refusals += _refusals(batch, failures)
            else:
                later.append(batch)
                reason = reason or next(failure.reason for failure in failures.values() if not _is_permanent(failure))
        if refusals:
            raise RefusedError.of(refusals, later)
        if later:
            raise SinkError(reason, later)


def _message(options: KafkaSink.Options, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the client's arguments for an event."""
    topic = headers.get(options.topic_header) if options.allow_topic_override else None
    partition = headers.get(options.partition_id_header, "") if options.partition_id_header else ""
    message: dict[str, Any] = {
        "topic": topic or _HEADER.sub(lambda found: headers.get(found[1], ""), options.topic),
        "value": body,
        "key": headers.get(options.key_header),
    }
    number = int(partition) if partition.isdecimal() and len(partition) < _DIGITS else None
    if number is not None or options.default_partition_id is not None:
        message["partition"] = options.default_partition_id if number is None else number
    if options.headers:
        message["headers"] = [(name, value.encode(errors="surrogatepass")) for name, value in headers.items()]
    return message


class _Failure(NamedTuple):
    """The failure of one event.

    :ivar error: the client's error, or a text if the client was not asked.
    :ivar own: True if the event selected its topic.
    """

    error: Any
    own: bool

    @property
    def reason(self) -> str:
        """The error as text."""
        return str(self.error)

    @property
    def is_local(self) -> bool:
        """True if no broker was asked."""
        return isinstance(self.error, str)


def _refusals(batch: EventBatch, failures: Mapping[int, _Failure]) -> Iterator[Refusal]:
    """Yield the events of a batch that can never be stored, grouped by reason."""
    whys = {place: (failure.reason, failure.is_local) for place, failure in failures.items()}
    for why in dict.fromkeys(whys.values()):
        reason, is_local = why
        part = batch.part([whys.get(place) == why for place in range(batch.count)])
        yield Refusal(part, reason, undeliverable=is_local, attempts=int(not is_local))


def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _recorder(failures: dict[int, _Failure], place: int, own: bool) -> Callable[[Any, Any], None]:
    def record(error: Any, _message: Any) -> None:
        if error is not None:
            failures[place] = _Failure(error, own)

    return record


def _is_permanent(failure: _Failure) -> bool:
    """Return True if the broker will never accept the message."""
    if failure.is_local:
        return True
    from confluent_kafka import KafkaError

    never = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD, KafkaError._INVALID_ARG}
    # An unknown partition or topic selected by a header would block all events after it.
    if failure.own:
        never |= {KafkaError.TOPIC_EXCEPTION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
        never.add(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    return failure.error.code() in never | {KafkaError._UNKNOWN_PARTITION}
