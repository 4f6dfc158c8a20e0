"""Define a case: several participants that send the same logs by turns. :mod:`.catalogue` lists the cases."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

#: Our own client programs, native and pure, and the one whose libraries run without the producer;
#: all other names are those of :data:`tests.benchmarks.peers.PEERS`.
OURS = ("ours", "pure", "encoding", "encoding_pure", "integrations", "libraries")
#: How a client is called, where that is not by its name.
TITLES = {
    "pure": "ours, pure",
    "encoding_pure": "encoding, pure",
    "integrations": "ours",
    "libraries": "without LogHub",
}
#: The run of the official producer, in most cases.
OFFICIAL = "official: send"
#: The linger of all clients where the time until the acknowledgement is taken, milliseconds.
LATENCY_LINGER_MS = 100
#: During which part of an outage's time the server does not answer.
OUTAGE = (0.2, 0.7)
#: Our ways that wait rather than send.
WAITING = ("idle", "dead", "stalled")
#: What ``--scale`` never goes below.
LEAST_LOGS, LEAST_SECONDS = 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One participant's part in a case; :class:`tests.benchmarks.clients.protocol.Job` is its job.

    :ivar client: one of :data:`OURS`, or a peer.
    :ivar x: where it stands on the axis of its case, if that has one.
    :ivar against: the run to which its ratio is taken; empty for that of the case.
    :ivar repeat: how often it is done in a round, if it is short; the median of its seconds counts.
    :ivar seconds: how long it waits, or sends at its rate, in place of ``count``; 0 if neither.
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
        """Who sends, and how: runs of the same line differ by their ``x``."""
        return f"{TITLES.get(self.client, self.client)}: {self.way}"

    def scaled(self, scale: float) -> Run:
        """As much smaller or larger, in whole thousands of logs."""
        seconds = self.seconds and max(LEAST_SECONDS, self.seconds * scale)
        count = int(self.rate * seconds) if self.rate else self.count and max(LEAST_LOGS, int(self.count * scale))
        return dataclasses.replace(self, seconds=seconds, count=count - count % 1000 if count > 1000 else count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Runs that are compared with each other.

    :ivar kind: which table shows it: ``rate``, ``latency``, ``scaling``, ``small``, ``waiting``, ``outage``.
    :ivar runs: by a name that is unique in the case.
    :ivar against: the run to which the others' ratios are taken.
    :ivar axis: what ``x`` is.
    :ivar most_rounds: a case that takes long has no more of them.
    :ivar one_process: one process for all runs of a client; else one for each, which gives each its peak of memory.
    :ivar note: what a reader of its table must know.
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
        """With runs as much smaller or larger."""
        return dataclasses.replace(self, runs={name: run.scaled(scale) for name, run in self.runs.items()})

    def of_clients(self, names: set[str]) -> Case:
        """Without the runs of other clients than ours and the named ones."""
        kept = {name: run for name, run in self.runs.items() if run.client in names or run.client in OURS}
        return dataclasses.replace(self, runs=kept)
