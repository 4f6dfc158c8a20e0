"""Define a case: several participants that send the same logs by turns. :mod:`.catalogue` lists the cases."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

#: Our own client programs, native and pure, and the program that logs without the producer. All other clients are in
#: :data:`tests.benchmarks.peers.PEERS`.
OURS = ("ours", "pure", "encoding", "encoding_pure", "integrations", "libraries")
#: Titles of the clients that are not shown by their names.
TITLES = {
    "pure": "ours, pure",
    "encoding_pure": "encoding, pure",
    "integrations": "ours",
    "libraries": "without LogHub",
}
#: The run of the official producer in most cases.
OFFICIAL = "official: send"
#: Milliseconds of linger of all clients in cases that measure the time until the acknowledgement.
LATENCY_LINGER_MS = 100
#: The part of an outage run in which the server does not answer.
OUTAGE = (0.2, 0.7)
#: Our ways that wait instead of sending.
WAITING = ("idle", "dead", "stalled")
#: The minimum of ``--scale``.
LEAST_LOGS, LEAST_SECONDS = 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of one participant in a case, from which :class:`tests.benchmarks.clients.protocol.Job` is made.

    :ivar client: one of :data:`OURS`, or a peer.
    :ivar x: the run's place on the axis of its case, if the case has one.
    :ivar against: the run to which the ratio is taken; empty for the case's own ``against``.
    :ivar repeat: how often a short run is repeated in a round; the median of its seconds counts.
    :ivar seconds: duration of a run that waits or sends at a rate, instead of ``count``; 0 for all others.
    """

    client: str
    way: str
    shape: str = "web"
    count: int = 0
    threads: int = 1
    streams: int = 1
    rate: int = 0
    seconds: float = 0
    repeat: int = 1
    x: float = 0
    against: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The client and the way: runs with the same ones are a line in a plot, and differ in ``x``."""
        return f"{TITLES.get(self.client, self.client)}: {self.way}"

    def scaled(self, scale: float) -> Run:
        """Return the run with ``scale`` times as many logs, in whole thousands."""
        seconds = self.seconds and max(LEAST_SECONDS, self.seconds * scale)
        count = int(self.rate * seconds) if self.rate else self.count and max(LEAST_LOGS, int(self.count * scale))
        return dataclasses.replace(self, seconds=seconds, count=count - count % 1000 if count > 1000 else count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Runs that are compared with each other.

    :ivar kind: the kind of its table: ``rate``, ``latency``, ``scaling``, ``small``, ``waiting``, ``outage``.
    :ivar runs: the runs by name.
    :ivar against: the run to which the others' ratios are taken.
    :ivar axis: the meaning of ``x``.
    :ivar most_rounds: maximum number of rounds, for a case that takes long.
    :ivar one_process: whether all runs of a client share a process; else each run has its own peak of memory.
    :ivar note: a sentence for the readers of the table.
    """

    id: str
    title: str
    kind: str
    runs: dict[str, Run]
    against: str = ""
    axis: str = ""
    most_rounds: int = 99
    one_process: bool = False
    note: str = ""

    def scaled(self, scale: float) -> Case:
        """Return the case with ``scale`` times as many logs in each run."""
        return dataclasses.replace(self, runs={name: run.scaled(scale) for name, run in self.runs.items()})

    def of_clients(self, names: set[str]) -> Case:
        """Return the case with only the runs of our clients and the named ones."""
        kept = {name: run for name, run in self.runs.items() if run.client in names or run.client in OURS}
        return dataclasses.replace(self, runs=kept)
