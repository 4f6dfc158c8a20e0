"""Accepted records complete exactly once while threads send, one closes, and interrupts fall anywhere."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from producer import Producer, ProducerClosedError, ProducerConfig, ProjectConfig, Result, SendFuture
from producer.server import LogHubServer
from producer.server.faults import answer
from tests.support.twins import OPEN_RECORDS

from .child import PROJECT, Ended, until

Run = Callable[..., Ended]
ROUNDS = 8
SENDERS = 50
#: Number of interrupts for each program.
LEAST_INTERRUPTS = 500
_SCARCE_OR_BEHIND = ["scarce memory", "memory channel", "file channel"]


@dataclass
class Tally:
    """The observations of one round's senders; callbacks run on two threads."""

    futures: list[SendFuture] = field(default_factory=list)
    told: Counter[bool] = field(default_factory=Counter)
    unexpected: list[BaseException] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, result: Result) -> None:
        with self.lock:
            self.told[result.successful] += 1


def _send_until_closed(
    producer: Producer, logstore: str, tally: Tally, started: threading.Barrier, number: int
) -> None:
    mine: list[SendFuture] = []
    started.wait()
    try:
        while True:
            mine.append(
                producer.send(
                    PROJECT, logstore, {"n": f"{number}-{len(mine)}"}, topic=str(number % 3), callback=tally.tell
                )
            )
    except ProducerClosedError:
        pass
    except BaseException as error:  # noqa: BLE001  # the test reports it
        tally.unexpected.append(error)
    with tally.lock:
        tally.futures += mine


@pytest.mark.parametrize("timeout", [None, 20.0, 0.0])
def test_invariant_4_fifty_senders_and_one_close_settle_every_accepted_record_once(
    timeout: float | None, server: LogHubServer
) -> None:
    """Callbacks, completed futures and accepted sends are equal in number; each success is on the server once."""
    server.faults.add(answer(503, "ServerBusy"), probability=0.1, seed=4)
    for round_number in range(ROUNDS):
        _one_round(server, timeout, f"closing-{round_number}", before_close=round_number * 250)


def _one_round(server: LogHubServer, timeout: float | None, name: str, before_close: int) -> None:
    project = ProjectConfig(
        PROJECT,
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=server.access_key_secret,
    )
    producer = Producer(project, config=ProducerConfig(linger_ms=100, batch_count_threshold=50, name=name))
    tally, started = Tally(), threading.Barrier(SENDERS + 1)
    threads = [
        threading.Thread(target=_send_until_closed, args=(producer, name, tally, started, number))
        for number in range(SENDERS)
    ]
    for thread in threads:
        thread.start()
    started.wait()
    until(lambda: producer.stats().accepted >= before_close)
    _close(producer, timeout)
    for thread in threads:
        thread.join(60)
    assert not tally.unexpected
    # A logstore of its own: a request of the round before may be stored late.
    _check(producer, tally, server.count(PROJECT, name))


def _close(producer: Producer, timeout: float | None) -> None:
    try:
        producer.close(timeout)
    except TimeoutError:
        assert timeout == 0


def _check(producer: Producer, tally: Tally, stored: int) -> None:
    results = [future.exception(timeout=20) for future in tally.futures]
    delivered = results.count(None)
    # All futures are complete; after a close that timed out, callbacks may be a moment late.
    until(
        lambda: sum(tally.told.values()) == len(tally.futures), what=f"{tally.told} of {len(tally.futures)} were told"
    )
    assert tally.told[True] == delivered
    stats = producer.stats()
    assert (stats.accepted, stats.delivered, stats.pending) == (len(tally.futures), delivered, 0)
    until(lambda: producer.stats().memory_used == 0)
    unclear = sum(error is not None and error.result.may_have_been_stored for error in results)
    assert delivered <= stored <= delivered + unclear


@pytest.mark.parametrize("twin", OPEN_RECORDS)
def test_an_interrupted_call_loses_and_doubles_no_record_of_another_and_close_ends_in_time(
    python: str, run: Run, twin: str
) -> None:
    """An interrupt loses only the interrupted call's records, duplicates none, and hangs no thread."""
    _check_interrupts(run, 100_000_000, twin, "none", python)


@pytest.mark.parametrize("twin", OPEN_RECORDS)
@pytest.mark.parametrize(
    ("memory", "channel"), [(60_000, "none"), (100_000_000, "memory"), (100_000_000, "file")], ids=_SCARCE_OR_BEHIND
)
def test_an_interrupted_call_loses_no_record_of_another_where_it_waits(
    run: Run, memory: int, channel: str, twin: str
) -> None:
    """The same holds for calls that wait for memory, and with a durable channel."""
    _check_interrupts(run, memory, twin, channel, sys.executable)


def _check_interrupts(run: Run, memory: int, twin: str, channel: str, python: str) -> None:
    ended = run("interrupts.py", LEAST_INTERRUPTS, memory, twin, channel, python=python)
    assert ended.number("interrupts") >= LEAST_INTERRUPTS, ended.stderr
    assert ended.number("native") == 0 or twin == "native"
    assert (ended.number("lost"), ended.number("twice"), ended.number("unknown")) == (0, 0, 0), ended.stderr
    assert ended.number("seconds") < 30, ended.stderr
