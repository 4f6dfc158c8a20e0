"""FairQueue: chooses the next batch among those that wait for an IO thread.

Three levels take turns, each by a rule of its own:

* **Destinations share the threads.** The next destination is the one with the fewest attempts in flight; among several,
  the one served longest ago. So a free thread serves a destination with fewer attempts, however long the attempts of
  the others take. Unreached destinations, whose last attempt got no response, together get at most half of the threads.
  Together with slow ones they get no more than half while a brisk destination is in use, whose batches would otherwise
  wait for slow attempts.
* **Streams of a destination share it by bytes**, by start-time fair queuing. The destination's clock counts bytes. A
  stream's turn is the clock when its first batch comes, and advances by the size of each batch that is taken. The
  stream with the lowest turn is next, and the clock follows it. A stream that sends much is soon ahead of the clock. A
  stream that sends little falls behind, and its batch precedes what the others have queued. It can fall behind by no
  more than the size of the largest batch, however long it sent nothing.
* **Batches of a stream are sent oldest first**, so that a retry does not wait behind later batches.

Batches behind a closed gate stay in this queue, and take no thread. The owner calls :meth:`FairQueue.wake` at the
alarm. A batch behind a closed gate has a last chance, when a later attempt would be too late: it is then sent although
the gate is closed.

Each step takes O(log n), n being the streams of a logstore, or the logstores of a destination.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from ...model.config import ProducerConfig
from ...model.metrics import DestinationStats, HeldStats
from ..batching.batch import ProducerBatch
from .concurrency import AdaptiveLimit
from .destinations import Destination, Logstore, ThreadShare
from .gates import LONGEST_UNREACHABLE, Gate, GateState, Reason, Verdict
from .retry_rules import RetryRules
from .turns import Turns, member_of, sooner

#: How long destinations and logstores without batches are remembered, seconds, and how many.
_IDLE_SECONDS, _MOST_IDLE = 60.0, 1024
#: Destinations in the statistics, and logstores of each.
_MOST_SHOWN = 100
#: Seconds. A destination whose responses take longer is slow. A brisk destination counts as in use until so long after
#: its last attempt.
_SLOW, _IN_USE = 1.0, 10.0


Owner = Destination | Logstore


class Turn(NamedTuple):
    """A batch taken from the queue, from :meth:`FairQueue.take` to :meth:`FairQueue.done`.

    :ivar batch: the batch.
    :ivar began: when it was taken, monotonic seconds.
    :ivar last_since: for a last chance, the start of the wait at the closed gate; else None.
    :ivar logstore: for the queue only, as is ``probes``.
    :ivar probes: True if it is the probe of its destination's gate, and of its logstore's.
    """

    batch: ProducerBatch
    began: float
    last_since: float | None
    logstore: Logstore
    probes: tuple[bool, bool]


class Report(NamedTuple):
    """The outcome of an attempt, as far as the queue needs it.

    :ivar verdict: the finding about the destination.
    :ivar seconds: the duration of the request; 0.0 if none was made.
    """

    verdict: Verdict
    seconds: float = 0.0


def _stats_of(destination: Destination, now: float) -> DestinationStats:
    name = destination.name
    held = (_held(logstore.key[1], logstore.gate, now) for logstore in destination.logstores.values())
    return DestinationStats(
        name=name,
        limit=destination.gate.limit.value,
        in_flight=destination.gate.in_flight,
        queued=destination.queued,
        held=_held(name, destination.gate, now),
        held_logstores=tuple(itertools.islice((why for why in held if why is not None), _MOST_SHOWN)),
    )


def _held(name: str, gate: Gate, now: float) -> HeldStats | None:
    if gate.reason is None:
        return None
    return HeldStats(name=name, reason=gate.reason.value, seconds=max(0.0, gate.until - now))


class FairQueue:
    """The batches that wait for an IO thread. It has no lock and no clock: the owner has both.

    Methods get ``now`` in monotonic seconds.

    :param rules: says until when a batch may wait behind a closed gate.
    """

    def __init__(self, config: ProducerConfig, rules: RetryRules) -> None:
        self._half = max(1, config.io_thread_count // 2)
        self._most = config.max_concurrency_per_destination or config.io_thread_count
        self._adaptive = config.adaptive_concurrency
        self._base, self._longest = config.base_retry_backoff_ms / 1000, config.max_retry_backoff_ms / 1000
        self._rules = rules
        self._destinations: dict[Hashable, Destination] = {}
        # Slow destinations respond late; unreached ones did not respond to their last attempt.
        self._brisk, self._slow, self._unreached = ThreadShare(), ThreadShare(), ThreadShare()
        self._now = 0.0
        self._brisk_used = -math.inf  # when a brisk destination was last in use
        self._alarms: Turns[Owner] = Turns()
        self._idle: OrderedDict[Owner, float] = OrderedDict()
        self._clock = 0.0  # the highest clock of the destinations
        self._count = 0
        self._ignoring_gates = False

    def __len__(self) -> int:
        """The number of batches that wait."""
        return self._count

    @property
    def alarm(self) -> float:
        """When :meth:`wake` has to be called, monotonic seconds; infinite for never."""
        first = self._alarms.first() if self._alarms.members else None
        return math.inf if first is None else first[0]

    @property
    def ready(self) -> bool:
        """True if :meth:`take` may return a batch."""
        return bool(self._brisk.ready.members or self._slow.ready.members or self._unreached.ready.members)

    def put(self, batch: ProducerBatch, destination: Hashable, now: float) -> None:
        """Add a batch that waits for an attempt."""
        self._now = now
        logstore = self._logstore(destination, (batch.key.project, batch.key.logstore))
        there = logstore.destination
        logstore.put(batch)
        there.queued += 1
        self._count += 1
        if self._idle:
            self._idle.pop(there, None)
            self._idle.pop(logstore, None)
        if there.gate.state is not GateState.OPEN:
            self._arm_for(there, batch)
        if logstore.gate.state is not GateState.OPEN:
            self._arm_for(logstore, batch)
        self._refresh(logstore)

    def take(self, now: float) -> Turn | None:
        """Take the next batch; None if none may be sent now. Every taken batch needs a call of :meth:`done`."""
        self._now = now
        destination = self._next()
        if destination is None:
            return None
        since = None
        if destination.urgent:
            logstore, batch, since = destination.urgent.popleft()
        else:
            logstore = member_of(destination.sendable)
            batch = logstore.pop(member_of(logstore.by_turn))
            self._clock = max(self._clock, destination.clock)
        destination.queued -= 1
        self._count -= 1
        destination.share.flying += 1
        probes = destination.gate.enter(), logstore.gate.enter()
        if any(probes):
            self._arm(destination)
            self._arm(logstore)
        self._refresh(logstore)
        return Turn(batch, now, since, logstore, probes)

    def done(self, turn: Turn, report: Report, now: float) -> None:
        """Note the end of an attempt."""
        self._now = now
        logstore, destination = turn.logstore, turn.logstore.destination
        verdict, seconds = report
        of_destination, of_logstore = turn.probes
        destination.share.flying -= 1
        destination.gate.leave(verdict.to_destination, turn.began, now, probe=of_destination, seconds=seconds)
        logstore.gate.leave(verdict.to_logstore, turn.began, now, probe=of_logstore)
        self._classify(destination, verdict, seconds)
        if (
            self._alarms.members
            or destination.gate.state is not GateState.OPEN
            or logstore.gate.state is not GateState.OPEN
        ):
            self._arm(destination)
            self._arm(logstore)
        if destination.queued:
            self._refresh(logstore)
        self._rest(logstore, now)

    def wake(self, now: float) -> None:
        """Open the gates whose time is over, and give their last chance to the batches that are due."""
        self._now = now
        while (first := self._alarms.first()) is not None and first[0] <= now:
            owner = first[2]
            owner.gate.let_probe(now)
            if not owner.gate.has_room():
                self._give_last_chances(owner, now)
            self._arm(owner)
            self._refresh_all(owner)

    def ignore_gates(self) -> None:
        """Ignore all gates from now on: all waiting batches are sent for the last time."""
        self._ignoring_gates = True
        for destination in self._destinations.values():
            self._refresh_all(destination)

    def clear(self) -> None:
        """Drop all batches."""
        for destination in self._destinations.values():
            for logstore in destination.logstores.values():
                logstore.clear()
            destination.urgent.clear()
            destination.queued = 0
            self._refresh_all(destination)
        self._count = 0

    def stats(self, now: float) -> tuple[DestinationStats, ...]:
        """Return the statistics of the destinations, the busiest first."""
        busiest_first = sorted(self._destinations.values(), key=lambda one: (-one.gate.in_flight, -one.queued))
        return tuple(_stats_of(one, now) for one in busiest_first[:_MOST_SHOWN])

    def _logstore(self, key: Hashable, name: tuple[str, str]) -> Logstore:
        destination = self._destinations.get(key)
        if destination is None:
            gate = self._gate(min(self._longest, LONGEST_UNREACHABLE))
            destination = self._destinations[key] = Destination(key, gate, self._clock, self._brisk)
        logstore = destination.logstores.get(name)
        if logstore is None:
            logstore = destination.logstores[name] = Logstore(name, self._gate(self._longest), destination)
        return logstore

    def _gate(self, longest: float) -> Gate:
        return Gate(AdaptiveLimit(self._most, adaptive=self._adaptive), self._base, longest)

    def _next(self) -> Destination | None:
        first = self._brisk.ready.first()
        unreached = self._unreached.flying
        if self._slow.ready.members:
            shared = self._now - self._brisk_used < _IN_USE
            if not shared or self._slow.flying + unreached < self._half:
                first = sooner(first, self._slow.ready.first())
        if self._unreached.ready.members and unreached < self._half:
            first = sooner(first, self._unreached.ready.first())
        return None if first is None else first[2]

    def _refresh(self, logstore: Logstore) -> None:
        """Update the order after a change of what may be sent."""
        destination = logstore.destination
        if not destination.queued:
            destination.sendable.remove(logstore)
            destination.share.ready.remove(destination)
            return
        first = logstore.by_turn.first()
        if first is not None and (self._ignoring_gates or logstore.gate.has_room()):
            destination.sendable.put(logstore, first[0])
        else:
            destination.sendable.remove(logstore)
        self._refresh_destination(destination)

    def _refresh_destination(self, destination: Destination) -> None:
        open_ = destination.sendable.members and (self._ignoring_gates or destination.gate.has_room())
        if open_ or destination.urgent:
            destination.share.ready.put(destination, destination.gate.in_flight)
        else:
            destination.share.ready.remove(destination)

    def _refresh_all(self, owner: Owner) -> None:
        for logstore in list(owner.logstores.values()) if isinstance(owner, Destination) else [owner]:
            self._refresh(logstore)

    def _classify(self, destination: Destination, verdict: Verdict, seconds: float) -> None:
        if verdict.reached is None:
            return
        if not verdict.reached:
            share = self._unreached
        else:
            known = destination.latency or seconds
            destination.latency = known + (seconds - known) * 0.3
            share = self._slow if destination.latency > _SLOW else self._brisk
        if share is self._brisk:
            self._brisk_used = self._now
        if share is not destination.share:
            destination.share.ready.remove(destination)
            destination.share.flying -= destination.gate.in_flight
            share.flying += destination.gate.in_flight
            destination.share = share

    def _arm(self, owner: Owner) -> None:
        """Set the alarm of a closed gate."""
        gate = owner.gate
        until = gate.until if gate.state is GateState.HELD else math.inf
        # Where a probe may be sent, the next batch is one, and needs no last chance.
        oldest = None if gate.has_room() or gate.is_open else owner.oldest()
        chance = math.inf if oldest is None else self._chance_of(oldest, gate)
        self._set_alarm(owner, min(until, chance))

    def _arm_for(self, owner: Owner, batch: ProducerBatch) -> None:
        """Update the alarm of a closed gate for a batch that was added."""
        owner.gate.let_probe(self._now)
        if not owner.gate.has_room():
            chance = max(self._now, self._chance_of(batch, owner.gate))
            self._set_alarm(owner, min(self._alarms.turn_of(owner), chance))

    def _set_alarm(self, owner: Owner, at: float) -> None:
        if at < math.inf and not self._ignoring_gates:
            self._alarms.put(owner, at)
        else:
            self._alarms.remove(owner)

    def _chance_of(self, batch: ProducerBatch, gate: Gate) -> float:
        return self._rules.last_chance(batch, gate.since, over_quota=gate.reason is Reason.QUOTA)

    def _give_last_chances(self, owner: Owner, now: float) -> None:
        destination = owner if isinstance(owner, Destination) else owner.destination
        since = owner.gate.since
        while (batch := owner.oldest()) is not None and self._chance_of(batch, owner.gate) <= now:
            logstore = destination.logstores[(batch.key.project, batch.key.logstore)]
            destination.urgent.append((logstore, logstore.pop(logstore.queues[batch.stream]), since))

    def _rest(self, logstore: Logstore, now: float) -> None:
        """Remember an idle logstore or destination for a while."""
        destination = logstore.destination
        if not logstore.queues and not logstore.gate.in_flight:
            self._idle[logstore] = now
        if not destination.queued and not destination.gate.in_flight:
            self._idle[destination] = now
        while self._idle:
            owner, since = next(iter(self._idle.items()))
            if len(self._idle) <= _MOST_IDLE and now - since < max(_IDLE_SECONDS, self._longest):
                return
            del self._idle[owner]
            self._alarms.remove(owner)
            if isinstance(owner, Logstore):
                owner.destination.logstores.pop(owner.key, None)
            elif self._destinations.get(owner.key) is owner:
                del self._destinations[owner.key]
