"""Processes under real servers deliver all logs at their end, or report the loss."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from producer import ConfigError, Producer, ProducerConfig
from producer.client import at_exit
from producer.integrations.asgi import FlushAtShutdown, loghub_lifespan
from producer.integrations.logging import LogHubHandler
from producer.integrations.structlog import LogHubProcessor
from producer.server import LogHubServer
from producer.testing import RecordingSink
from tests.integrations.conftest import PROJECT
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, eventually

#: An application whose records would linger for a minute.
APP = """
import sys
if "gevent" in sys.argv:
    import gevent.monkey
    gevent.monkey.patch_all()
if "eventlet" in sys.argv:
    import eventlet
    eventlet.monkey_patch()
import logging.config, os, signal, threading, time

def configure():
    loghub = {{
        "class": "loghub.integrations.logging.LogHubHandler", "project": "my-project", "logstore": {logstore!r},
        **{reach!r}, "config": {{"linger_ms": 60_000, "drain_timeout_ms": {drain}}},
    }}
    loggers = {{"shop": {{"handlers": ["loghub"], "level": "INFO"}}}}
    logging.config.dictConfig(
        {{"version": 1, "disable_existing_loggers": False, "handlers": {{"loghub": loghub}}, "loggers": loggers}}
    )

def begin():
    for number in range(50):
        logging.getLogger("shop").info("line %d", number)
    print("ready", flush=True)

async def app(scope, receive, send):
    await receive()
    begin()
    await send({{"type": "lifespan.startup.complete"}})
    await receive()
    logging.getLogger("shop").info("shut down")
    await send({{"type": "lifespan.shutdown.complete"}})

def wsgi():
    begin()
    return lambda environ, start: []

configure()
if __name__ == "__main__":
    if "uvicorn" in sys.argv:
        import uvicorn
        uvicorn.run(app, port=0)
    if "preloaded" in sys.argv:
        child = os.fork()
        if child:
            signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
            os._exit(0 if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM else 1)
        asked = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: asked.set())
        begin()
        asked.wait()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    begin()
    while True:
        time.sleep(0.1)  # Python 3.14 may begin a sleep although a signal has come
"""
UVICORN = [sys.executable, "-m", "uvicorn", "--port", "0", "app:app"]
GUNICORN = [sys.executable, "-m", "gunicorn", "--bind", "127.0.0.1:0", "app:wsgi()"]
#: Like uvicorn's worker for gunicorn: a child of the process that made the handler raises the signal at its end.
PRELOADED = [sys.executable, "app.py", "preloaded"]


@pytest.fixture
def run(tmp_path: Path, logstore: str) -> Callable[..., tuple[int, str]]:
    """Return a function that starts the application, ends it by SIGTERM, and returns its exit code and error output."""

    def run(command: list[str], reach: dict[str, Any], drain: int = 10_000) -> tuple[int, str]:
        (tmp_path / "app.py").write_text(APP.format(logstore=logstore, reach=reach, drain=drain))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                assert process.stdout.readline() == "ready\n", process.communicate()[1]
                if any("uvicorn" in word for word in command):  # a worker that ends before it listens has no shutdown
                    eventually(lambda: "Uvicorn running" in process.stderr.readline())
                process.send_signal(signal.SIGTERM)
                errors = process.communicate(timeout=PATIENCE)[1]
            finally:
                process.kill()
        return process.returncode, errors

    return run


@pytest.mark.parametrize(
    ("command", "code", "last"),
    [
        pytest.param([sys.executable, "app.py"], -signal.SIGTERM, [], id="script"),
        pytest.param([sys.executable, "app.py", "uvicorn"], -signal.SIGTERM, ["shut down"], id="configured-first"),
        pytest.param([sys.executable, "app.py", "gevent"], -signal.SIGTERM, [], id="gevent"),
        pytest.param([sys.executable, "app.py", "eventlet"], -signal.SIGTERM, [], id="eventlet"),
        pytest.param(UVICORN, -signal.SIGTERM, ["shut down"], id="uvicorn"),
        pytest.param(GUNICORN, 0, [], id="gunicorn"),
        pytest.param(PRELOADED, 0, [], id="preloaded"),
    ],
)
def test_sigterm_loses_nothing_that_was_logged(
    run: Callable[..., tuple[int, str]],
    command: list[str],
    code: int,
    last: list[str],
    reach: dict[str, Any],
    loghub: LogHubServer,
    logstore: str,
) -> None:
    """SIGTERM loses no record of a handler from ``dictConfig``, before or after a server's own signal handler."""
    assert run(command, reach)[0] == code
    assert [log.fields["message"] for log in loghub.logs(PROJECT, logstore)] == [
        *map("line {}".format, range(50)),
        *last,
    ]


def test_sigterm_tells_how_much_is_lost_while_loghub_is_away(run: Callable[..., tuple[int, str]]) -> None:
    """SIGTERM while LogHub is away reports the number of lost records after ``drain_timeout_ms``."""
    away = {"endpoint": "http://127.0.0.1:9", "access_key_id": "a", "access_key_secret": "b"}
    code, errors = run([sys.executable, "app.py"], away, drain=100)
    assert code == -signal.SIGTERM
    assert "50 records could not be delivered and are lost" in errors
    assert "in all 50 logs failed (" in errors


@pytest.mark.parametrize("wanted", [True, False])
def test_sigterm_is_handled_only_where_that_is_wanted(wanted: bool) -> None:
    """The option leaves SIGTERM alone, and so does a handler made on another thread than the main one."""
    code = (
        "import signal, threading\n"
        "from loghub import Producer\n"
        "from loghub.integrations.logging import LogHubHandler\n"
        "from loghub.testing import RecordingSink\n"
        "producer = Producer(sink=RecordingSink())\n"
        "make = lambda **options: LogHubHandler(producer, 'p', 'l', **options)\n"
        "thread = threading.Thread(target=make); thread.start(); thread.join()\n"
        f"make(drain_on_sigterm={wanted})\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == f"{not wanted}\n"


Messages = list[dict[str, Any]]


def _live(app: Any) -> Messages:
    """Run an application's lifespan, and return its answers."""
    asked = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: Messages = []

    async def receive() -> dict[str, Any]:
        return next(asked)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app({"type": "lifespan"}, receive, send))
    return sent


async def _with_lifespan(_scope: Any, receive: Any, send: Any) -> None:
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


async def _without_lifespan(_scope: Any, _receive: Any, _send: Any) -> None:
    raise ValueError("Django can only handle ASGI/HTTP connections, not lifespan.")


@pytest.mark.parametrize("app", [_with_lifespan, _without_lifespan])
def test_an_asgi_application_delivers_the_logs_of_all_integrations_and_producers(app: Any) -> None:
    """An ASGI application delivers the logs of all integrations and producers before its server is notified."""
    sinks = [RecordingSink(), RecordingSink(), RecordingSink()]
    producers = [Producer(sink=sink, config=ProducerConfig(linger_ms=60_000)) for sink in sinks]
    handler, processor = LogHubHandler(producers[0], "p", "l"), LogHubProcessor(producers[1], "p", "l")
    handler.handle(logging.makeLogRecord({"msg": "x", "name": "shop", "levelno": 20}))
    processor.send("info", {"event": "x"})
    producers[2].send("p", "l", {"n": 1})
    answers = _live(FlushAtShutdown(app))
    assert [answer["type"] for answer in answers] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert [len(sink.records()) for sink in sinks] == [1, 1, 1]
    for producer in producers:
        producer.close()


def test_an_application_that_fails_to_start_is_not_answered_for() -> None:
    """The error of an application that fails to start reaches the server."""

    async def broken(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed"})
        raise RuntimeError("no database")

    with pytest.raises(RuntimeError, match="no database"):
        _live(FlushAtShutdown(broken))


@pytest.fixture
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the producers that other tests left open."""
    monkeypatch.setattr(at_exit, "_draining", {})


@pytest.mark.usefixtures("no_others")
def test_a_lifespan_makes_the_producer_closes_it_and_flushes_the_other_ones() -> None:
    """Handlers find the producer in the state of the application and the request; at its end all is delivered."""
    sinks = [RecordingSink(), RecordingSink()]
    producers = [Producer(sink=sink, config=ProducerConfig(linger_ms=60_000)) for sink in sinks]
    app = SimpleNamespace(state=SimpleNamespace())

    async def main() -> None:
        async with loghub_lifespan(lambda: producers[0])(app) as state:
            assert state["producer"] is app.state.producer is producers[0]
            for producer in producers:
                producer.send("p", "l", {"n": 1})

    asyncio.run(main())
    assert [len(sink.records()) for sink in sinks] == [1, 1]
    assert [producer.closed for producer in producers] == [True, False]
    producers[1].close()
    with pytest.raises(ConfigError, match="must be a function that returns a Producer, got 'Producer'"):
        loghub_lifespan(producers[0])  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_others")
def test_a_lifespan_ends_in_time_when_the_server_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """If the server hangs, the end of the lifespan logs that within its time, and raises nothing."""
    sinks = [GatedSink(), GatedSink()]
    producers = [Producer(sink=sink) for sink in sinks]

    async def main() -> None:
        async with loghub_lifespan(lambda: producers[0], timeout=0.05)(SimpleNamespace(state=SimpleNamespace())):
            for producer in producers:
                producer.send("p", "l", {"n": 1})

    asyncio.run(main())
    told = [record.getMessage() for record in caplog.records if record.name == "loghub.integrations"]
    assert [text.startswith(f"{producers[0].name}: close: ") for text in told] == [True, False]
    assert "flush: 1 batch is still in flight after 0.050 s" in told[1]
    for sink, producer in zip(sinks, producers, strict=True):
        sink.gate.set()
        producer.close()
