"""Simulate a hundred thousand producers that leave an endpoint in the same second, and return to it.

Each producer has a batch each two seconds (``linger_ms``), at a phase of its own, and one request in flight: failures
have lowered its concurrency. The choice of the endpoint and the backoff of batches are the real ones, in simulated
time. The second endpoint works on requests one after another, and refuses them with 503 while its queue is longer than
a second. A new connection with its handshake costs it as much as five requests.

``python -m tests.sinks.loghub.fleet`` prints a table, a line for each fleet; it takes a few minutes.
"""

import heapq
import itertools
import random
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from producer.model.errors import AttemptError, NetworkError, ServerError, UnreachableError
from producer.pipeline.sending.retry_rules import wait_backoff
from producer.sinks.loghub.endpoint_choice import EndpointChoice

#: Seconds: between two batches of a producer, for a request, until a frozen endpoint is left; the longest queue.
_LINGER, _LATENCY, _PATIENCE, _QUEUE = 2.0, 0.05, 10.0, 1.0
#: The work of a new connection, in requests.
_HANDSHAKE = 5
#: The first endpoint is away from this second on, until the other one; the simulation ends at the last one.
AWAY, BACK, END = 10.0, 70.0, 400.0
REFUSED = UnreachableError("RequestError", "refused")
SILENT = NetworkError("SocketTimeout", "no answer")
BUSY = ServerError("ServerBusy", "try later", http_status=503)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a fleet.

    :ivar requests: requests at the second endpoint in its busiest second.
    :ivar connections: new connections there in the busiest second.
    :ivar refused: the share of its requests that it refused.
    :ivar caught_up: seconds after the outage until no producer has a batch older than five seconds.
    :ivar probes: probes of the first endpoint in the busiest second.
    :ivar returns: producers that return to the first endpoint in the busiest second.
    :ivar returned: seconds after the recovery until 99 of 100 have returned.
    :ivar changes: the most changes of one producer.
    """

    requests: int
    connections: int
    refused: float
    caught_up: float
    probes: int
    returns: int
    returned: float
    changes: int


class _Attempts:
    """The state of a retry that the backoff reads."""

    __slots__ = ("attempt_number",)


class _Producer:
    __slots__ = ("busy", "choice", "connected", "oldest", "retry", "waiting")

    def __init__(self, choice: EndpointChoice) -> None:
        self.choice = choice
        self.waiting = self.retry = 0
        self.busy = self.connected = False
        self.oldest = 0.0


class Fleet:
    """Producers before two endpoints.

    :param frozen: True if the first endpoint accepts connections and is silent; False if it refuses them.
    :param capacity: requests that the second endpoint works on in a second, as a multiple of the usual number.
    :param spread: False if all producers send in the same instant, and their pauses have no jitter.
    """

    def __init__(self, producers: int, capacity: float, *, frozen: bool, spread: bool = True, seed: int = 1) -> None:
        self._random = random.Random(seed)
        uniform = self._random.uniform if spread else lambda _low, high: high
        self._frozen, self._work = frozen, _LINGER / producers / capacity
        self._backoff: Any = wait_backoff(0.1, 50.0, uniform)
        self._events: list[tuple[float, int, str, _Producer, Any]] = []
        self._count = itertools.count()
        self._free_at = 0.0
        self.requests: Counter[int] = Counter()
        self.connections: Counter[int] = Counter()
        self.probes: Counter[int] = Counter()
        self.returns: Counter[int] = Counter()
        self.refused = 0
        self.late = 0.0
        self._producers = []
        for _ in range(producers):
            choice = EndpointChoice("p", ("http://1", "http://2"), _PATIENCE, uniform)
            self._producers.append(_Producer(choice))
            self._at(self._random.uniform(0, _LINGER) if spread else 0.0, "batch", self._producers[-1])

    def _at(self, when: float, what: str, producer: _Producer, more: Any = None) -> None:
        heapq.heappush(self._events, (when, next(self._count), what, producer, more))

    def run(self) -> Outcome:
        steps = {"batch": self._batch, "attempt": self._attempt, "done": self._done}
        while self._events and self._events[0][0] < END:
            now, _, what, producer, more = heapq.heappop(self._events)
            steps[what](producer, now, more)
        return self._outcome()

    def _batch(self, producer: _Producer, now: float, _more: None) -> None:
        self._at(now + _LINGER, "batch", producer)
        producer.waiting += 1
        if producer.waiting == 1:
            producer.oldest = now
        if not producer.busy:
            self._attempt(producer, now, None)

    def _is_away(self, now: float) -> bool:
        return AWAY <= now < BACK

    def _attempt(self, producer: _Producer, now: float, _more: None) -> None:
        choice = producer.choice
        producer.busy = True
        probe = choice.take_probe(now)
        if probe is not None:
            self._probe(choice, probe, now)
        if choice.current == 1:
            end, error = self._second(producer, now)
        elif self._is_away(now):
            limit = min(choice.limit, 60.0)
            end, error = (now + limit, SILENT) if self._frozen else (now + 0.001, REFUSED)
        else:
            end, error = now + _LATENCY, None
        self._at(end, "done", producer, (choice.current, now, error))

    def _probe(self, choice: EndpointChoice, index: int, now: float) -> None:
        before = choice.current
        if index == 0:
            self.probes[int(now)] += 1
        choice.probed(index, REFUSED if index == 0 and self._is_away(now) else None, now)
        if choice.current == 0 != before:
            self.returns[int(now)] += 1

    def _second(self, producer: _Producer, now: float) -> tuple[float, AttemptError | None]:
        self.requests[int(now)] += 1
        cost = 1
        if not producer.connected:
            self.connections[int(now)] += 1
            producer.connected, cost = True, 1 + _HANDSHAKE
        self._free_at = max(self._free_at, now)
        if self._free_at - now > _QUEUE:
            self.refused += 1
            self._free_at += (cost - 1) * self._work
            return now + _LATENCY, BUSY
        self._free_at += cost * self._work
        return self._free_at + _LATENCY, None

    def _done(self, producer: _Producer, now: float, more: tuple[int, float, AttemptError | None]) -> None:
        index, began, error = more
        if error is not None:
            producer.choice.failed(index, error, began, now)
            producer.retry += 1
            state = _Attempts()
            state.attempt_number = producer.retry
            self._at(now + self._backoff(state), "attempt", producer)
            return
        producer.choice.answered(index)
        if now - producer.oldest > 5.0:
            self.late = max(self.late, now)
        producer.retry, producer.busy = 0, False
        producer.waiting -= 1
        producer.oldest = now - min(now - producer.oldest, producer.waiting * _LINGER)
        if producer.waiting:
            self._attempt(producer, now, None)

    def _outcome(self) -> Outcome:
        total, returned = 0, 0.0
        for second, count in sorted(self.returns.items()):
            total += count
            if total >= 0.99 * len(self._producers):
                returned = second - BACK
                break
        return Outcome(
            max(self.requests.values()),
            max(self.connections.values()),
            self.refused / sum(self.requests.values()),
            max(0.0, self.late - AWAY),
            max(self.probes.values()),
            max(self.returns.values(), default=0),
            returned,
            max(each.choice.stats().changes for each in self._producers),
        )


#: Multiples of the usual requests, whether the first endpoint is frozen, and whether the phases differ.
ROWS = [(3.0, False, True), (3.0, True, True), (1.5, False, True), (1.5, True, True), (3.0, False, False)]


def row(producers: int, capacity: float, *, frozen: bool, spread: bool) -> str:
    found = Fleet(producers, capacity, frozen=frozen, spread=spread).run()
    kind = "frozen" if frozen else "refuses"
    return (
        f"| {kind}{'' if spread else ', no jitter'} | {capacity:g} | {found.requests:,} | {found.connections:,} "
        f"| {found.refused:.0%} | {found.caught_up:.0f} | {found.probes:,} | {found.returns:,} | {found.returned:.0f} "
        f"| {found.changes} |"
    )


def main() -> None:
    producers = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for capacity, frozen, spread in ROWS:
        print(row(producers, capacity, frozen=frozen, spread=spread), flush=True)


if __name__ == "__main__":
    import logging

    logging.disable()
    main()
