"""The choice among a project's endpoints, in simulated time, with outages of each kind."""

import random
import socket
import ssl
from collections.abc import Callable
from http.client import RemoteDisconnected

import pytest

from producer.model.errors import AttemptError
from producer.sinks.http.attempts import Sent
from producer.sinks.http.failures import error_of_exception, error_of_limit
from producer.sinks.http.transport import Answer
from producer.sinks.loghub.classify import error_of_answer
from producer.sinks.loghub.endpoint_choice import GOOD_PROBES, LONGEST_PAUSE, EndpointChoice, is_outage

PATIENCE = 10.0
#: An error for an endpoint at a time; None for an answer.
World = Callable[[int, float], AttemptError | None]


def answer(status: int, code: str = "") -> AttemptError:
    body = b'{"errorCode": "%b", "errorMessage": "m"}' % code.encode() if code else b"<html>Bad Gateway</html>"
    return error_of_answer(Answer(status, "", body), {})


OUTAGES = {
    "refused": error_of_exception(ConnectionRefusedError(111, "Connection refused"), Sent.NOTHING),
    "no connection in time": error_of_exception(TimeoutError("timed out"), Sent.NOTHING),
    "no such name": error_of_exception(socket.gaierror(-2, "failed to resolve"), Sent.NOTHING),
    "TLS": error_of_exception(ssl.SSLError(1, "handshake failure"), Sent.NOTHING),
    "frozen": error_of_exception(TimeoutError("timed out"), Sent.WHOLE),
    "limit": error_of_limit("1 s", Sent.WHOLE),
    "closed": error_of_exception(RemoteDisconnected("closed"), Sent.WHOLE),
    "page of a gateway": answer(502),
    "busy": answer(503, "ServerBusy"),
    "internal": answer(500, "InternalServerError"),
}
REFUSALS = [
    answer(403, "WriteQuotaExceed"),
    answer(401, "Unauthorized"),
    answer(404, "LogStoreNotExist"),
    answer(400, "ParameterInvalid"),
    answer(404, "ShardNotExist"),
    answer(413, "PostBodyTooLarge"),
]
REFUSED = OUTAGES["refused"]


class Simulation:
    """Attempts and probes of one producer, each of which takes a moment.

    :ivar used: the endpoint of each attempt, with its time.
    :ivar probes: the times of the probes.
    """

    def __init__(self, world: World, endpoints: int = 2, *, seed: int = 1) -> None:
        self.world, self.now = world, 0.0
        uniform = random.Random(seed).uniform
        self.choice = EndpointChoice("p", [f"http://{name}" for name in range(endpoints)], PATIENCE, uniform)
        self.used: list[tuple[float, int]] = []
        self.probes: list[float] = []

    def run(self, until: float, step: float = 1.0) -> "Simulation":
        """Make an attempt each ``step`` seconds, with a probe before it if one is due."""
        while self.now < until:
            probe = self.choice.take_probe(self.now)
            if probe is not None:
                assert self.choice.take_probe(self.now) is None, "a second probe in flight"
                self.probes.append(self.now)
                self.choice.probed(probe, self.world(probe, self.now), self.now)
            index = self.choice.current
            self.used.append((self.now, index))
            error = self.world(index, self.now)
            if error is None:
                self.choice.answered(index)
            else:
                self.choice.failed(index, error, self.now, self.now)
            self.now += step
        return self


def failing(index: int, since: float, until: float, error: AttemptError = REFUSED) -> World:
    return lambda endpoint, now: error if endpoint == index and since <= now < until else None


@pytest.mark.parametrize("error", OUTAGES.values(), ids=OUTAGES)
def test_an_endpoint_in_an_outage_is_left_after_three_failures_in_a_row(error: AttemptError) -> None:
    """Each kind of outage, of the network, the server or a gateway, moves the attempts to the next endpoint."""
    run = Simulation(failing(0, 5, 20, error)).run(20)
    assert [now for now, index in run.used if index == 0] == [0, 1, 2, 3, 4, 5, 6, 7]
    stats = run.choice.stats()
    assert (stats.endpoint, stats.left, stats.changes) == ("http://1", ("http://0",), 1)
    assert stats.reason == f"left http://0 ({error})"


def test_one_failure_as_long_as_the_patience_suffices() -> None:
    """A silent endpoint is left at its first timeout; attempts that were in flight together count as one failure."""
    choice = Simulation(failing(0, 0, 0)).choice
    for _ in range(8):
        assert not choice.failed(0, REFUSED, 0.0, 1.0)
    assert choice.failed(0, OUTAGES["frozen"], 0.5, 10.2)


@pytest.mark.parametrize("error", REFUSALS, ids=str)
def test_a_refusal_is_an_answer(error: AttemptError) -> None:
    """A refusal for a quota, a key, a logstore or a batch is an answer, and another endpoint would give the same."""
    assert not is_outage(error)


def test_single_failures_change_nothing() -> None:
    """An endpoint that answers two of three attempts is kept."""
    run = Simulation(lambda index, now: REFUSED if index == 0 and now % 3 else None).run(600)
    assert {index for _, index in run.used} == {0}


def test_the_return_takes_several_good_probes_over_a_time() -> None:
    """After an outage, the first endpoint is used again after three good probes, and within three minutes."""
    run = Simulation(failing(0, 0, 600)).run(1200)
    back = next(now for now, index in run.used if index == 0 and now > 10)
    assert 600 + 10 <= back <= 600 + GOOD_PROBES * LONGEST_PAUSE
    assert len([now for now in run.probes if now >= 600]) == GOOD_PROBES
    assert len([now for now in run.probes if now < 600]) < 25, "probes of a dead endpoint become rare"
    assert run.choice.stats().reason == ""


@pytest.mark.parametrize("seed", range(5))
def test_an_unsteady_endpoint_is_not_used_in_turns(seed: int) -> None:
    """An endpoint that fails for five of each thirty seconds changes the endpoint a few times an hour at most."""
    run = Simulation(lambda index, now: REFUSED if index == 0 and now % 30 < 5 else None, seed=seed).run(3600)
    assert run.choice.stats().changes <= 12
    assert sum(1 for now, index in run.used if run.world(index, now)) < 60, "failed attempts"


def test_an_endpoint_with_good_probes_and_bad_writes_is_tried_rarely() -> None:
    """Where probes succeed and writes fail, the producer returns ever more rarely."""
    run = Simulation(failing(0, 0, 3600))
    run.choice.probed = lambda index, _error, now, probed=run.choice.probed: probed(index, None, now)  # type: ignore[method-assign, misc]
    run.run(3600)
    assert run.choice.stats().changes <= 24


def test_if_no_endpoint_answers_the_first_to_recover_is_used_at_once() -> None:
    """With all endpoints away, attempts stay at the last one, and one good probe of another suffices."""

    def world(index: int, now: float) -> AttemptError | None:
        return None if now >= (900, 300, 700)[index] else REFUSED

    run = Simulation(world, endpoints=3).run(1500)
    first = next(now for now, index in run.used if world(index, now) is None)
    assert 300 <= first <= 300 + 2 * LONGEST_PAUSE
    assert {index for now, index in run.used if 20 < now < 300} == {2}
    assert run.choice.current == 0
    assert run.choice.stats().changes <= 5


def test_the_endpoint_in_use_has_the_full_time_limits_if_no_other_is_trusted() -> None:
    """Attempts are cut after the patience only while another endpoint may be used instead."""
    run = Simulation(failing(0, 0, 600))
    assert run.choice.limit == PATIENCE
    assert run.run(20).choice.limit == float("inf")
