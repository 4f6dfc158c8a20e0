"""Regression tests for faults that hostile tests have found."""

import asyncio
import concurrent.futures
import http.client
import json
import threading
from typing import Any

import pytest

from producer import (
    ConfigError,
    Credentials,
    CredentialsError,
    Producer,
    ProducerConfig,
    Result,
    SendFuture,
    SendTimeoutError,
)
from producer.model.results import Attempt
from producer.sinks.http.attempts import Sent
from producer.sinks.http.failures import error_of_exception
from producer.sinks.http.transport import Answer
from producer.sinks.loghub.classify import error_of_answer
from producer.sinks.loghub.credentials.cache import CredentialsCache
from producer.testing import ManualClock, RecordingSink
from producer.wire.json_group import decode_json, encode_json
from producer.wire.log_group import encode_log
from tests.support.sinks import GatedSink


class Settled:
    result = Result(successful=True, attempts=(Attempt(success=True),), attempt_count=1)

    def wait(self, timeout: float | None) -> None: ...

    def follow(self, position: int) -> None: ...


class Pending(Settled):
    result = None  # type: ignore[assignment]

    def keep_future(self, position: int, future: object) -> None: ...


def test_futures_have_conditions_of_their_own() -> None:
    """concurrent.futures takes the conditions of several futures in the order of their ids: a shared one could
    deadlock.
    """
    first, second = SendFuture(Pending()), SendFuture(Pending())
    assert first._condition is first._condition
    assert first._condition is not second._condition
    plain: concurrent.futures.Future[object] = concurrent.futures.Future()
    stop = threading.Event()

    def poll(*futures: Any) -> None:
        while not stop.is_set():
            concurrent.futures.wait(futures, timeout=0)

    threads = [threading.Thread(target=poll, args=pair) for pair in ((first, plain), (plain, second), (second, first))]
    for thread in threads:
        thread.start()
    stop.wait(0.2)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("startable", range(5))
def test_close_ends_when_only_some_threads_could_start(startable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's limit of threads costs concurrency, not records, and never blocks ``close``."""
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("few-"):
            if len(started) >= startable:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    sink = RecordingSink()
    producer = Producer(config=ProducerConfig(name="few", io_thread_count=2), sink=sink)
    future = producer.send("p", "l", {"k": "v"})
    producer.close(timeout=20)
    assert future.result(0).successful


def test_a_send_in_a_callback_never_waits_for_memory() -> None:
    """A send in a callback fails at once if the memory is full: its thread is one that returns memory."""
    sink, outcomes = GatedSink(), []
    config = ProducerConfig(total_size_in_bytes=60_000, max_block_ms=-1, batch_count_threshold=1, io_thread_count=1)
    producer = Producer(config=config, sink=sink)
    stream = producer.stream("p", "l")

    def again(_result: Result) -> None:
        try:
            stream.send({"k": "x" * 50_000})
        except SendTimeoutError as error:
            outcomes.append(error.waited)

    stream.send({"k": "v"}, callback=again)
    for _ in range(8):
        stream.send({"k": "v"})
    threading.Timer(0.05, sink.gate.set).start()
    producer.close(timeout=20)
    assert not outcomes or max(outcomes) < 1


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, KeyboardInterrupt])
def test_any_exception_of_a_credentials_provider_fails_one_attempt_only(error: type[BaseException]) -> None:
    """Any exception of a credentials provider fails one attempt only."""

    class Wild:
        calls = 0

        def get_credentials(self) -> Credentials:
            self.calls += 1
            if self.calls == 1:
                raise error
            return Credentials(access_key_id="a", access_key_secret="s")

    cache = CredentialsCache(Wild(), ManualClock(), "t")
    with pytest.raises(CredentialsError, match=error.__name__):
        cache.get()
    assert cache.get().access_key_id == "a"


@pytest.mark.parametrize("expires_at", ["2026-01-01", float("nan"), object()])
def test_an_invalid_expiry_is_refused_when_the_credentials_are_made_not_when_a_record_needs_them(
    expires_at: Any,
) -> None:
    """An invalid expiry is refused when the credentials are made, not when a record needs them."""
    with pytest.raises(ConfigError, match="expires_at"):
        Credentials(access_key_id="a", access_key_secret="s", expires_at=expires_at)


def test_an_error_body_of_any_depth_or_length_is_a_short_error() -> None:
    """The text that attempts keep is bounded."""
    deep = error_of_answer(Answer(500, "r" * 5000, b"[" * 60_000), {})
    assert deep.retriable
    long = json.dumps({"errorCode": "C" * 5000, "errorMessage": "m" * 60_000}).encode()
    error = error_of_answer(Answer(500, "r" * 5000, long), {})
    assert (len(error.code), len(error.message), len(error.request_id)) == (128, 1024, 128)


def test_the_text_of_a_server_or_proxy_is_one_log_line_without_control_characters() -> None:
    """The text of a server or proxy is one log line without control characters; text of any script stays."""
    body = json.dumps(
        {"errorCode": "Odd\x1b[31m", "errorMessage": "grün 日本\n2026-01-01 ERROR forged\x9b31m"}
    ).encode()
    error = error_of_answer(Answer(400, "", body), {})
    assert (error.code, error.message) == ("Odd\\x1b[31m", "grün 日本\\n2026-01-01 ERROR forged\\x9b31m")
    broken = error_of_exception(http.client.BadStatusLine("\x1b[31m\nforged"), Sent.WHOLE)
    assert broken.message == "no answer: BadStatusLine: \\x1b[31m\\nforged"


def test_text_that_lies_about_its_length_is_sent_as_it_is() -> None:
    """Subclasses of str and bytes are sent by their real characters, and do not corrupt neighbouring records."""

    class Liar(str):
        __slots__ = ()

        def __len__(self) -> int:
            return 1

        def encode(self, *_: object) -> bytes:  # type: ignore[override]
            return b"?"

    class LyingBytes(bytes):
        def __len__(self) -> int:
            return 1

    expected = encode_log({"k": "hello"}, 1)
    for _ in range(2):
        assert encode_log({"k": Liar("hello")}, 1) == expected
        assert encode_log({"k": LyingBytes(b"hello")}, 1) == expected
        assert encode_log({"k": "hello"}, 1) == expected


def test_a_field_named_like_the_time_survives_json() -> None:
    """The producer's own ``__time__`` is a number and comes first."""
    record = encode_log({"__time__": "noon", "__time_ns_part__": "x", "k": "v"}, 7)
    assert decode_json(encode_json([record], "t", "s", [])) == [record]
