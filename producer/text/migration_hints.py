"""Names of options from other producers, and their names here.

confluent-kafka and librdkafka write them with dots, kafka-python with underscores, the Java producer in camelCase. The
official Python producer and the official SDK's handler have their own names. All are looked up in lower case with
underscores.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

_PROJECT = "is an option of ProjectConfig"
_MADE = "Producer(ProjectConfig('my-project', endpoint=..., access_key_id=..., access_key_secret=...))"
_BYTES = "total_size_in_bytes bounds the memory, in bytes"
_BATCH = "batch_size_threshold_in_bytes (bytes) and batch_count_threshold (logs) close a batch"
_ALWAYS = "a send succeeds only when the server has acknowledged it"

#: The hint for a foreign name; a single word is the name of the same option here.
FOREIGN: dict[str, str] = {
    # confluent-kafka, librdkafka, kafka-python
    "metadata_broker_list": f"the address {_PROJECT}: endpoint=",
    "client_id": "name",
    "queue_buffering_max_ms": "linger_ms",
    "batch_size": _BATCH,
    "batch_num_messages": "batch_count_threshold",
    "message_max_bytes": _BATCH,
    "max_request_size": _BATCH,
    "queue_buffering_max_messages": _BYTES,
    "queue_buffering_max_kbytes": _BYTES,
    "buffer_memory": "total_size_in_bytes",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "base_retry_backoff_ms",
    "retry_backoff_max_ms": "max_retry_backoff_ms",
    "message_timeout_ms": "delivery_timeout_ms",
    "request_timeout_ms": "http.attempt_timeout_ms",
    "socket_timeout_ms": "http.read_timeout_ms",
    "socket_connection_setup_timeout_ms": "http.connect_timeout_ms",
    "compression_type": "compression",
    "compression_codec": "compression",
    "acks": _ALWAYS,
    "request_required_acks": _ALWAYS,
    "enable_idempotence": "a stream is: producer.stream(..., idempotent=True)",
    "transactional_id": "a stream has a key of its own: producer.stream(..., idempotent=SequenceKey(...))",
    "max_in_flight": "max_concurrency_per_destination",
    "max_in_flight_requests_per_connection": "max_concurrency_per_destination",
    "security_protocol": "the endpoint selects it: https:// or http://",
    "sasl_username": f"the key {_PROJECT}: access_key_id=",
    "sasl_password": f"the key {_PROJECT}: access_key_secret=",
    "ssl_ca_location": "http.ca_bundle",
    "ssl_cafile": "http.ca_bundle",
    "enable_ssl_certificate_verification": "http.verify",
    "statistics_interval_ms": "stats_interval_ms",
    "stats_interval": "stats_interval_ms",
    "partitioner": "shard_hash= of send chooses the shard",
    "on_delivery": "each send takes one: callback=",
    "dr_cb": "each send takes one: callback=",
    "value_serializer": "default= converts other values to text",
    # the official Python producer, and the handler of the official SDK
    "endpoint": f"it {_PROJECT}",
    "access_key_id": f"it {_PROJECT}",
    "access_key_secret": f"it {_PROJECT}",
    "security_token": f"it {_PROJECT}",
    "credentials": f"it {_PROJECT}",
    "project": f"it {_PROJECT}, and an argument of send",
    "logstore": "pass it to send, or to producer.stream",
    "log_store": "pass logstore to send, or to producer.stream",
    "topic": "pass it to send, or to producer.stream",
    "tags": "log_tags",
    "linger": "linger_ms",
    "buffer_bytes": "total_size_in_bytes",
    "queue_size": _BYTES,
    "put_wait": "max_block_ms",
    "close_wait": "drain_timeout_ms",
    "batch_size_threshold": "batch_size_threshold_in_bytes",
    "max_attempts": "retries counts the attempts after the first one",
    "base_backoff": "base_retry_backoff_ms",
    "max_backoff": "max_retry_backoff_ms",
    "delivery_timeout": "delivery_timeout_ms",
    "processing_workers": "io_thread_count",
    "timeout": "http.attempt_timeout_ms",
    "proxies": "http.proxies",
}

#: The hints for arguments of ``ProjectConfig``.
FOREIGN_OF_PROJECT: dict[str, str] = {
    "end_point": "endpoint",
    "bootstrap_servers": "endpoint",
    "url": "endpoint",
    "host": "endpoint",
    "access_key": "access_key_secret",
    "secret": "access_key_secret",
    "secret_access_key": "access_key_secret",
    "key_id": "access_key_id",
    "access_id": "access_key_id",
    "token": "security_token",
    "sts_token": "security_token",
    "credentials_provider": "credentials",
    "logstore": "pass it to send, or to producer.stream",
    "log_store": "pass logstore to send, or to producer.stream",
    "name": "project",
}


_STREAM = "a stream has it: producer.stream(project, logstore)"

#: Hints for methods of other producers; a single word is the name of the same method here.
_METHODS: dict[str, str] = {
    **{
        name: f"{_STREAM}.{name}(...)"
        for name in ("send_many", "send_lines", "send_arrow", "send_and_wait", "asend_and_wait", "hurry", "resume")
    },
    "put_logs": "send",
    "send_log": "send",
    "send_logs": f"send takes one log, or a few that travel together; for more {_STREAM}.send_many(...)",
    "produce": "send",
    "put": "send",
    "log": "send",
    "shutdown": "close",
    "stop": "close",
    "destroy": "close",
    "poll": "callbacks run on threads of the producer: no call is needed",
    "start": "a producer starts with its first send: no call is needed",
}

_WAIT = "result(timeout) waits for the outcome, or raises"

#: Hints for methods of other futures; a single word is the name of the same method here.
_METHODS_OF_FUTURE: dict[str, str] = {
    "get": _WAIT,
    "wait": _WAIT,
    "add_callback": "add_done_callback(fn) calls fn(future), callback= of send calls fn(result)",
    "add_both": "add_done_callback(fn) calls fn(future), callback= of send calls fn(result)",
    "add_errback": "add_done_callback(fn) calls fn(future), whose exception() is None where it was delivered",
    "succeeded": "exception() is None where it was delivered",
    "failed": "exception() is None where it was delivered",
    "is_done": "done",
    "value": _WAIT,
}

#: Names that users import from the package, and the import to use.
ELSEWHERE: dict[str, str] = {
    "LogHubServer": "from loghub.testing import LogHubServer",
    "LogHubHandler": "from loghub.integrations.logging import LogHubHandler",
    "LogHubProcessor": "from loghub.integrations.structlog import LogHubProcessor",
    "LogHubSink": "from loghub.integrations.loguru import LogHubSink",
    "QueuedLogHandler": "it is LogHubHandler here: from loghub.integrations.logging import LogHubHandler",
    "Config": f"it is ProducerConfig here, of Producer(config=...), with the address and the key apart: {_MADE}",
    **dict.fromkeys(
        ("LogClient", "LogProducer", "KafkaProducer", "SerializingProducer"),
        f"it is Producer here: {_MADE}",
    ),
    "PutLogsRequest": "it is producer.send(project, logstore, {...}) here",
}


def meant_method(name: str, known: Sequence[str]) -> str:
    """Return the hint for a method that a producer does not have.

    :param known: the methods that it has.
    """
    return _meant("Producer", name, _METHODS, known)


def meant_of_future(name: str, known: Sequence[str]) -> str:
    """Return the hint for a method that a future does not have."""
    return _meant("SendFuture", name, _METHODS_OF_FUTURE, known)


def _meant(kind: str, name: str, methods: Mapping[str, str], known: Sequence[str]) -> str:
    error, meant = f"{kind!r} object has no attribute {name!r}", methods.get(name)
    if meant is not None:
        return f"{error}: {meant if ' ' in meant else f'it is called {meant} here'}"
    near = [] if name.startswith("_") else difflib.get_close_matches(name, known, n=1)
    return f"{error}; did you mean {near[0]}?" if near else error


def by_name(takes: str, example: str, more: Sequence[object]) -> str:
    """Return the error message for positional arguments that must be keywords."""
    return f"{takes}, and all others by keyword, such as {example}: got {more[0]!r} as well"


def own_form(name: str) -> str:
    """Return ``name`` in lower case with underscores: ``maxBlockMs`` and ``max.block.ms`` as ``max_block_ms``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace(".", "_").replace("-", "_")


def hint(name: str, known: Iterable[str], foreign: Mapping[str, str] = FOREIGN) -> str:
    """Return the hint for an unknown option.

    :param known: the existing options.
    :param foreign: the hints for names of other producers.
    """
    options, form = {each.lower(): each for each in known}, own_form(name)
    if form in options:
        return f"it is written {options[form]}"
    meant = f"http.{form.removeprefix('http_')}"
    if meant not in options:
        meant = foreign.get(form, "")
    if foreign and not meant and " " not in (of_the_project := FOREIGN_OF_PROJECT.get(form, " ")):
        meant = f"it {_PROJECT}: {of_the_project}="
    if meant:
        return meant if " " in meant else _written(meant)
    found = [options[each] for each in difflib.get_close_matches(form, options, n=3)]
    return f"did you mean {' or '.join(found)}?" if found else f"known options are {', '.join(options.values())}"


def _written(name: str) -> str:
    if name.startswith("http."):
        bare = name.removeprefix("http.")
        return f"it is {bare} of HttpConfig: ProducerConfig(http=HttpConfig({bare}=...)), in a mapping {name}"
    return f"it is called {name} here"
