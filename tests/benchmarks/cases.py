"""What is measured: cases, in each of which several participants send the same logs by turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Our own client programs; all other names are those of :data:`tests.benchmarks.peers.PEERS`.
OURS = ("ours", "encoding")
#: Our ways that wait rather than send.
WAITING = ("idle", "dead", "stalled")
#: What ``--scale`` never goes below.
LEAST_LOGS, LEAST_SECONDS = 1000, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one participant does in a case; see :class:`tests.benchmarks.clients.protocol.Job`.

    :ivar client: one of :data:`OURS`, or a peer.
    :ivar x: where it stands on the axis of its case, if that has one.
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
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """Who sends, and how: runs of the same line differ by their ``x``."""
        return f"{self.client}: {self.way}"

    def scaled(self, scale: float) -> Run:
        """As much smaller or larger, in whole thousands of logs."""
        seconds = self.seconds and max(LEAST_SECONDS, self.seconds * scale)
        count = int(self.rate * seconds) if self.rate else self.count and max(LEAST_LOGS, int(self.count * scale))
        return dataclasses.replace(self, seconds=seconds, count=count - count % 1000 if count > 1000 else count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Runs that are compared with each other.

    :ivar kind: which table shows it: ``rate``, ``latency``, ``scaling``, ``waiting``, ``outage``.
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


# Logs of a round by client and way: about a second each.
_COUNTS = {
    "ours: send": 200_000,
    "ours: send_callback": 200_000,
    "ours: send_many": 500_000,
    "ours: send_arrow": 1_600_000,
    "official: send": 200_000,
    "python_sdk: put_logs": 50_000,
    "python_sdk: queued_handler": 20_000,
    "kafka: produce": 400_000,
    "kafka: produce_bytes": 400_000,
    "java: send": 400_000,
    "otlp: emit": 20_000,
}
OFFICIAL = "official: send"


def _throughput(shape: str, title: str, streams: int, share: float = 1) -> Case:
    runs = {}
    for line, count in _COUNTS.items():
        client, _, way = line.partition(": ")
        runs[line] = Run(client=client, way=way, shape=shape, streams=streams, count=int(count * share))
    id_ = shape if shape in ("java", "web", "wide", "unicode") else "file"
    return Case(id=id_, title=title, kind="rate", runs=runs, against=OFFICIAL)


def _named(lines: Iterator[tuple[str, Run]]) -> dict[str, Run]:
    return dict(lines)


def _threads() -> Iterator[tuple[str, Run]]:
    for line in ("ours: send", OFFICIAL):
        for threads in (1, 2, 4, 10):
            client, _, way = line.partition(": ")
            run = Run(client=client, way=way, shape="java", streams=50, count=200_000, threads=threads, x=threads)
            yield f"{line}, {threads} thread{'s' * (threads > 1)}", run


def _latency(rate: int) -> Iterator[tuple[str, Run]]:
    for line in ("ours: send", OFFICIAL, "kafka: produce", "java: send"):
        client, _, way = line.partition(": ")
        yield line, Run(client=client, way=way, rate=rate, seconds=5, options={"linger_ms": LATENCY_LINGER_MS})


def _shapes(axis: str, values: tuple[int, ...], ways: tuple[str, ...], count_of: Any) -> Iterator[tuple[str, Run]]:
    for value in values:
        for line in ways:
            client, _, way = line.partition(": ")
            count = int(count_of(value) * (4 if way in ("send_arrow", "send_many") else 1))
            run = Run(client=client, way=way, shape=f"{axis}={value}", count=count, x=value)
            yield f"{line}, {axis}={value:,}", run


def _streams() -> Iterator[tuple[str, Run]]:
    # Neither time nor memory ends a batch early: what is sent is the same however long it takes.
    patient = {"linger_ms": 600_000, "total_size_in_bytes": 2**30}
    for streams in (1, 10, 50, 1000, 10_000, 100_000):
        run = Run(client="ours", way="send", streams=streams, count=300_000, x=streams, options=patient)
        yield f"ours: send, streams={streams:,}", run


#: The linger of all clients where the time until the acknowledgement is taken, milliseconds.
LATENCY_LINGER_MS = 100
_LINES = ("ours: send", "ours: send_many", "ours: send_arrow", OFFICIAL)
_OUTAGE_LINES = ("ours: send", OFFICIAL)
_OUTAGE_RUN = Run(
    client="",
    way="send",
    shape="java",
    streams=50,
    rate=20_000,
    seconds=20,
    options={"total_size_in_bytes": 64 * 2**20},
)
#: During which part of an outage's time the server does not answer.
OUTAGE = (0.2, 0.7)


def all_cases(file: str | None = None) -> dict[str, Case]:
    """Every case, by its id.

    :param file: the file whose lines are the logs of the case ``file``; None leaves that case without runs.
    """
    cases = [
        _throughput("java", "Java producer's shape: 8 fields, 576 bytes, 50 streams", 50),
        _throughput("web", "Access log: 6 fields, 223 bytes, one stream", 1),
        _throughput("wide", "40 fields, 956 bytes, one stream", 1, 0.25),
        _throughput("unicode", "Text that is not ASCII: 6 fields, 170 bytes, one stream", 1),
        _throughput(file, f"Lines of `{Path(file).name}`, one stream", 1)
        if file
        else Case(id="file", title="Lines of a real file", kind="rate", runs={}, note="Needs `--file PATH`."),
        Case(
            id="threads",
            title="Sender threads, Java producer's shape, 50 streams",
            kind="scaling",
            axis="sender threads",
            runs=_named(_threads()),
            against=f"{OFFICIAL}, 1 thread",
        ),
        *(
            Case(
                id=f"latency-{rate // 1000}k",
                title=f"Latency at {rate:,} logs/s, access log, `linger_ms` {LATENCY_LINGER_MS}",
                kind="latency",
                runs=_named(_latency(rate)),
                against=OFFICIAL,
                most_rounds=3,
            )
            for rate in (10_000, 50_000)
        ),
        Case(
            id="cost",
            title="Cost per byte: other shapes against the access log",
            kind="rate",
            runs={
                "web": Run(client="ours", way="send", count=200_000),
                "web, 50 streams": Run(client="ours", way="send", count=200_000, streams=50),
                "wide": Run(client="ours", way="send", shape="wide", count=50_000),
                "unicode": Run(client="ours", way="send", shape="unicode", count=200_000),
            },
            against="web",
        ),
        Case(
            id="encode",
            title="Encoding and compressing alone, one thread, no server",
            kind="rate",
            runs={
                f"{way}, {shape}": Run(client="encoding", way=way, shape=shape, count=count)
                for shape in ("java", "web")
                for way, count in (("logs", 80_000), ("columns", 160_000), ("lz4", 160_000), ("columns_lz4", 160_000))
            },
            one_process=True,
        ),
        Case(
            id="fields",
            title="Number of fields, 16 bytes each",
            kind="scaling",
            axis="fields",
            runs=_named(_shapes("fields", (1, 3, 10, 30, 100), _LINES, lambda n: 1_500_000 / (n + 10))),
            one_process=True,
            most_rounds=3,
        ),
        Case(
            id="length",
            title="Length of the value, one field",
            kind="scaling",
            axis="bytes",
            runs=_named(_shapes("length", (8, 64, 512, 2048, 8192), _LINES, lambda n: 2e8 / (n + 1000))),
            one_process=True,
            most_rounds=3,
        ),
        Case(
            id="streams",
            title="Number of streams in turn, access log",
            kind="scaling",
            axis="streams",
            runs=_named(_streams()),
            one_process=True,
            most_rounds=1,
            note="Batches wait until the end, so that each stream is live: the more streams, the fewer logs a request. "
            "What the senders take is the cost of `send()`, and to live streams that behind the first log of each; the "
            "rest is that of the requests.",
        ),
        Case(
            id="work",
            title="Amount of work: one run, access log",
            kind="scaling",
            axis="logs",
            runs={
                f"ours: send, {count:,} logs": Run(client="ours", way="send", count=count, repeat=repeat, x=count)
                for count, repeat in ((100_000, 9), (1_000_000, 1), (10_000_000, 1))
            },
            most_rounds=3,
            note="The shortest one is repeated nine times in a round, and the median taken.",
        ),
        Case(
            id="outage",
            title="A server that does not answer for a while, 20,000 logs/s of the Java producer's shape",
            kind="outage",
            runs={line: dataclasses.replace(_OUTAGE_RUN, client=line.partition(":")[0]) for line in _OUTAGE_LINES},
            most_rounds=1,
        ),
        Case(
            id="waiting",
            title="Nothing to do, a dead server, a stalled one",
            kind="waiting",
            runs={
                "idle": Run(client="ours", way="idle", seconds=10),
                "dead": Run(client="ours", way="dead", seconds=10),
                "stalled": Run(client="ours", way="stalled", seconds=5, options={"total_size_in_bytes": 100 * 2**20}),
            },
            most_rounds=1,
        ),
    ]
    return {case.id: case for case in cases}
