"""User code that the producer calls may call the producer: nothing deadlocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from producer import Producer, ProducerError, ProjectConfig
from producer.channels import MemoryChannel
from producer.model.config import RetryPolicy
from producer.model.credentials import Credentials, StaticCredentials
from producer.model.errors import BodyTooLargeError, CloseTimeoutError, NetworkError, RejectedError
from producer.testing import ScriptedSink
from tests.support.pipelines import config
from tests.support.waiting import PATIENCE, Call, eventually

LOG = {"a": "b"}
KEYS = StaticCredentials(credentials=Credentials(access_key_id="id", access_key_secret="secret"))
PROJECT = ProjectConfig("q", endpoint="http://127.0.0.1:1", credentials=KEYS)
#: The time for a call that waits for its own thread to report that.
SHORT = 0.05

Calls = dict[str, Callable[[Producer], object]]


def _resume(producer: Producer) -> None:
    stream = producer.stream("p", "l", ordered=True)
    assert stream.stopped is None
    stream.resume()


OPEN_CALLS: Calls = {
    "stats": Producer.stats,
    "repr": repr,
    "send": lambda producer: producer.send("p", "l", LOG),
    "stream": lambda producer: producer.stream("p", "l", topic="t").send(LOG),
    "send_many": lambda producer: producer.stream("p", "l").send_many([LOG, LOG]),
    "put_project_config": lambda producer: producer.put_project_config(PROJECT),
    "remove_project_config": lambda producer: producer.remove_project_config("nobody"),
    "resume": _resume,
    "flush": lambda producer: producer.flush(SHORT),
    "pickle": lambda producer: producer.__reduce__(),
}
CLOSE_CALLS: Calls = {"close": lambda producer: producer.close(SHORT)}


class Meddler:
    """Calls the producer once from each place, on the place's own thread and on another one that it waits for.

    :ivar stuck: calls that did not return in time, with their places.
    :ivar seen: the places.
    """

    def __init__(self, calls: Calls, only: str | None = None) -> None:
        self.producer: Producer | None = None
        self.seen: set[str] = set()
        self.stuck: list[str] = []
        self._calls, self._only = calls, only
        self._lock = threading.Lock()  # guards seen

    def __call__(self, place: str) -> None:
        producer = self.producer
        with self._lock:
            if producer is None or place in self.seen or self._only not in (None, place):
                return
            self.seen.add(place)
        for name, call in self._calls.items():
            self._meddle(place, name, call, producer)

    def _meddle(self, place: str, name: str, call: Callable[[Producer], object], producer: Producer) -> None:
        other = Call(lambda: _quietly(call, producer))
        other.thread.join(PATIENCE / 4)
        if not other.done:
            self.stuck.append(f"{place}: {name} on another thread")
            return
        self.stuck.append(f"{place}: {name} on the same thread")
        _quietly(call, producer)
        self.stuck.remove(f"{place}: {name} on the same thread")


def _quietly(call: Callable[[Producer], object], producer: Producer) -> None:
    with suppress(ProducerError):  # closed meanwhile, or refused since it would wait for itself
        call(producer)


def _watched(target: Any, meddler: Meddler, label: str, methods: tuple[str, ...]) -> Any:
    """Return ``target``; each of its methods calls the producer first."""
    for name in methods:
        original = getattr(target, name)

        def wrapper(*args: Any, _original: Any = original, _name: str = name, **options: Any) -> Any:
            meddler(f"{label}.{_name}")
            return _original(*args, **options)

        setattr(target, name, wrapper)
    return target


SINK = (
    "put_project",
    "remove_project",
    "project_configs",
    "destination",
    "tail_size",
    "encode",
    "decode",
    "write",
    "close",
)
TRANSACTION = ("begin", "put_many", "take", "acknowledge", "commit", "rollback", "close")
TAKEN = {f"transaction.{name}" for name in ("put_many", "take", "acknowledge", "commit")}


class Meddling:
    """All user code that a producer may be given, each part a meddler."""

    def __init__(self, meddler: Meddler) -> None:
        self.meddler = meddler
        script = [NetworkError("R", "down"), BodyTooLargeError("B", "too large"), None, RejectedError("N", "never")]
        self.sink = _watched(ScriptedSink(script), meddler, "sink", SINK)
        self.policy = RetryPolicy(stop=self._stop, wait=self._wait)

    def _stop(self, state: object) -> bool:
        self.meddler("retry.stop")
        return False

    def _wait(self, state: object) -> float:
        self.meddler("retry.wait")
        return 0.0

    def callback(self, result: object) -> None:
        self.meddler("callback")

    def done(self, future: object) -> None:
        self.meddler("done-callback")

    def channel(self, name: str) -> MemoryChannel:
        channel = _watched(MemoryChannel(name=name), self.meddler, name, ("stats", "sync", "close"))
        original = channel.transaction

        def transaction() -> Any:
            self.meddler(f"{name}.transaction")
            return _Transaction(original(), self.meddler, name)

        channel.transaction = transaction
        return channel  # type: ignore[no-any-return]


class _Transaction:
    def __init__(self, inner: Any, meddler: Meddler, label: str) -> None:
        self._inner, self._meddler, self._label = inner, meddler, label

    def __getattr__(self, name: str) -> Any:
        if name in TRANSACTION:
            self._meddler(f"{self._label}.transaction.{name}")
        return getattr(self._inner, name)

    def __enter__(self) -> _Transaction:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        self._meddler(f"{self._label}.transaction.exit")
        return self._inner.__exit__(*error)


@pytest.fixture
def logger_of() -> Iterator[Callable[[Meddler], None]]:
    """Put a meddling handler on the package's logger."""
    handlers: list[logging.Handler] = []

    def install(meddler: Meddler) -> None:
        class Handler(logging.Handler):
            def handle(self, record: logging.LogRecord) -> bool:
                meddler(f"log of {record.name}")
                return True

        handlers.append(Handler())
        logging.getLogger("loghub").addHandler(handlers[0])

    yield install
    for handler in handlers:
        logging.getLogger("loghub").removeHandler(handler)


def _work(meddling: Meddling, *, durable: bool) -> None:
    """Do everything that a producer does from its first record to its end."""
    meddler = meddling.meddler
    channels = {"channel": meddling.channel("channel"), "dead_letter": meddling.channel("dead letter")}
    options = config(name="meddled", retry_policy=meddling.policy, linger_ms=100, base_retry_backoff_ms=1)
    producer = Producer(config=options, sink=meddling.sink, **(channels if durable else {}))  # type: ignore[arg-type]
    meddler.producer = producer
    with suppress(ProducerError):
        producer.put_project_config(PROJECT)
        producer.remove_project_config("q")
        for topic in "abc":
            future = producer.send("p", "l", [LOG, LOG], topic=topic, callback=meddling.callback)
            future.add_done_callback(meddling.done)
        producer.flush(PATIENCE)
        producer._renew_in_child()  # as a fork does; the next send makes a new pipeline
        producer.send("p", "l", LOG)
    repr(producer)
    _close(producer)


def _close(producer: Producer) -> None:
    try:
        producer.close(PATIENCE)
    except CloseTimeoutError:  # a meddler has closed it with a shorter timeout
        producer.close()


def _run(meddler: Meddler, *, durable: bool) -> None:
    work = Call(lambda: _work(Meddling(meddler), durable=durable))
    work.thread.join(2 * PATIENCE)
    assert meddler.stuck == []
    work.result(0)


PLAIN_PLACES = {f"sink.{name}" for name in SINK} | {"callback", "done-callback", "retry.stop", "retry.wait"}
CHANNEL_PLACES = {"channel.stats", "channel.close", "channel.transaction", "dead letter.close"} | {
    f"channel.{name}" for name in TAKEN
}


def test_whatever_is_called_may_call_the_producer(logger_of: Callable[[Meddler], None]) -> None:
    """Sinks, retry strategies, callbacks and log handlers may call from their thread, and from one they wait for."""
    meddler = Meddler(OPEN_CALLS)
    logger_of(meddler)
    _run(meddler, durable=False)
    assert meddler.seen >= PLAIN_PLACES
    assert any(place.startswith("log of ") for place in meddler.seen)


def test_channels_may_call_the_producer(logger_of: Callable[[Meddler], None]) -> None:
    """Channels may call while the pipeline behind them is made, and while it ends."""
    meddler = Meddler(OPEN_CALLS)
    logger_of(meddler)
    _run(meddler, durable=True)
    assert meddler.seen >= CHANNEL_PLACES


@pytest.mark.parametrize("place", sorted(PLAIN_PLACES))
def test_whatever_is_called_may_close_the_producer(place: str) -> None:
    """A close from any place returns in time, or fails with a reason; the producer is closed permanently in the end."""
    meddler = Meddler(CLOSE_CALLS, place)
    _run(meddler, durable=False)
    assert meddler.seen == {place}


@pytest.mark.parametrize("place", sorted(CHANNEL_PLACES))
def test_channels_may_close_the_producer(place: str) -> None:
    """Channels may close the producer from any place, as other user code may."""
    meddler = Meddler(CLOSE_CALLS, place)
    _run(meddler, durable=True)
    assert meddler.seen == {place}


def test_credentials_providers_may_call_the_producer() -> None:
    """Credentials providers may call the producer on the thread that signs."""
    meddler = Meddler(OPEN_CALLS | CLOSE_CALLS)

    class Provider:
        def get_credentials(self) -> Any:
            meddler("credentials")
            return KEYS.get_credentials()

    project = ProjectConfig("p", endpoint="http://127.0.0.1:1", credentials=Provider())
    producer = Producer(project, config=config(name="signed", retries=0, linger_ms=100))
    meddler.producer = producer
    producer.send("p", "l", LOG)
    eventually(lambda: meddler.seen)
    closing = Call(lambda: _close(producer))
    closing.thread.join(2 * PATIENCE)
    assert meddler.stuck == []
    closing.result(0)
