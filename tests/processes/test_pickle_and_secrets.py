"""A pickled producer carries its secrets and no threads; no repr or log shows a secret."""

import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from producer import (
    Credentials,
    HttpConfig,
    Producer,
    ProducerConfig,
    ProjectConfig,
    ResultFailedError,
    StaticCredentials,
)
from producer.server import LogHubServer
from producer.server.faults import answer, cut

from .child import LOGSTORE, PROJECT, environment_for

SECRETS = ("the-secret-key", "the-security-token", "the-proxy-password")


@pytest.fixture
def config() -> ProducerConfig:
    http = HttpConfig(proxies={})
    return ProducerConfig(linger_ms=100, retries=2, base_retry_backoff_ms=1, name="travels", http=http)


@pytest.fixture
def project(server: LogHubServer) -> ProjectConfig:
    server.access_keys["the-id"] = SECRETS[0]
    return ProjectConfig(PROJECT, endpoint=server.endpoint, access_key_id="the-id", access_key_secret=SECRETS[0])


def _objects(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield ``value`` and all objects of this package that its attributes lead to."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict | list | tuple | set):
        for item in [*value.values()] if isinstance(value, dict) else [*value]:
            yield from _objects(item, seen)
    if not type(value).__module__.startswith("producer"):
        return
    yield value
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in [*slots, *getattr(value, "__dict__", {})]:
        yield from _objects(getattr(value, name, None), seen)


def test_invariant_10_pickle_carries_the_configuration_and_no_thread(
    config: ProducerConfig, project: ProjectConfig, server: LogHubServer
) -> None:
    """A producer that has sent, and its stream, work in another process, which starts without records or threads."""
    with Producer(project, config=config) as producer:
        producer.send(PROJECT, LOGSTORE, {"n": "here"}).result(timeout=60)
        stream = producer.stream(PROJECT, LOGSTORE, topic="travelled", tags={"a": "b"})
        data = pickle.dumps((producer, stream))
    program = (
        "import pickle, sys, threading\n"
        "producer, stream = pickle.loads(sys.stdin.buffer.read())\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert producer.config.retries == 2 and repr(producer).startswith('<Producer travels open')\n"
        "producer.send('my-project', 'app-log', {'n': 'there'})\n"
        "stream.send({'n': 'stream'})\n"
        "assert stream._producer is producer\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, env=environment_for(""), check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert {log.fields["n"]: log.topic for log in server.logs(PROJECT, LOGSTORE)} == {
        "here": "",
        "there": "",
        "stream": "travelled",
    }


def test_invariant_13_no_repr_of_anything_reachable_shows_a_secret(project: ProjectConfig) -> None:
    """No repr of an object reachable from a running producer, or of a configuration, shows a secret."""
    token = Credentials(access_key_id="id", access_key_secret=SECRETS[0], security_token=SECRETS[1])
    second = ProjectConfig("second", endpoint="http://localhost", credentials=StaticCredentials(credentials=token))
    http = HttpConfig(proxies={"https": f"http://user:{SECRETS[2]}@proxy:3128"})
    producer = Producer(project, second, config=ProducerConfig(http=http, drain_timeout_ms=0))
    producer.stats()
    found = list(_objects(producer, set()))
    assert {type(thing).__name__ for thing in found} >= {"Credentials", "ProjectConfig", "HttpConfig", "LogHubSink"}
    shown = {
        type(thing).__name__: secret for thing in found for secret in SECRETS if secret in repr(thing) + str(thing)
    }
    assert shown == {}
    producer.close()


def test_invariant_13_no_log_line_and_no_error_of_a_failing_run_shows_a_secret(
    config: ProducerConfig, project: ProjectConfig, server: LogHubServer, caplog: pytest.LogCaptureFixture
) -> None:
    """No logger at DEBUG shows a secret, the HTTP library's included: refusals, resets, a wrong key, a dead proxy."""
    caplog.set_level(logging.DEBUG)
    errors = [_error_after(server, config, project, fault) for fault in FAULTS]
    wrong = ProjectConfig(
        PROJECT,
        endpoint=server.endpoint,
        access_key_id="the-id",
        access_key_secret="the-secret-key-2",
        security_token=SECRETS[1],
    )
    errors.append(_error_after(server, config, wrong, None))
    proxies = {"http": f"http://user:{SECRETS[2]}@127.0.0.1:1"}
    errors.append(_error_after(server, ProducerConfig(http=HttpConfig(proxies=proxies), retries=0), project, None))
    assert len(errors) == len(FAULTS) + 2
    text = caplog.text + "".join(f"{error!r} {error} {error.result}" for error in errors)
    assert "failed after" in caplog.text
    assert [secret for secret in SECRETS if secret in text] == []


FAULTS = [
    answer(400, "PostBodyInvalid"),
    answer(401, "SignatureNotMatch"),
    answer(503, "ServerBusy"),
    cut("after_body"),
]


def _error_after(
    server: LogHubServer, config: ProducerConfig, project: ProjectConfig, fault: Callable[..., Any] | None
) -> ResultFailedError:
    server.faults.clear()
    if fault is not None:
        server.faults.add(fault)
    with Producer(project, config=config) as producer:
        error = producer.send(PROJECT, LOGSTORE, {"n": "1"}).exception(timeout=20)
    assert error is not None
    return error
