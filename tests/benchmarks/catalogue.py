"""List the cases, in the order of the document.

The pure implementation is beside the native one wherever ``send``, ``send_many``, ``send_arrow`` or ``send_lines`` take
part, with fewer logs, since it is slower. On the axes it has only ``send``; it takes part neither in the ten million
logs of ``work`` nor in the cases that wait.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .cases import LATENCY_LINGER_MS, OFFICIAL, OURS, TITLES, Case, Run

_CLIENTS = {title: name for name, title in TITLES.items() if title not in OURS}

# Logs of a round by client and way: a native run takes about a second, a pure one less.
_COUNTS = {
    "ours: send": 500_000,
    "ours: send_callback": 500_000,
    "ours: send_many": 800_000,
    "ours: send_arrow": 1_600_000,
    "ours, pure: send": 60_000,
    "ours, pure: send_many": 80_000,
    "ours, pure: send_arrow": 400_000,
    OFFICIAL: 200_000,
    "python_sdk: put_logs": 50_000,
    "python_sdk: queued_handler": 20_000,
    "kafka: produce": 400_000,
    "kafka: produce_bytes": 400_000,
    "java: send": 400_000,
    "otlp: emit": 20_000,
}


def _run(line: str, **more: Any) -> Run:
    client, _, way = line.partition(": ")
    return Run(client=_CLIENTS.get(client, client), way=way, **more)


def _throughput(shape: str, title: str, streams: int, share: float = 1) -> Case:
    runs = {line: _run(line, shape=shape, streams=streams, count=int(of * share)) for line, of in _COUNTS.items()}
    id_ = shape if shape in ("java", "web", "wide", "unicode") else "file"
    return Case(id=id_, title=title, kind="rate", runs=runs, against=OFFICIAL)


def _of_file(file: str | None) -> Case:
    if file is None:
        return Case(id="file", title="Lines of a real file", kind="rate", runs={}, note="Needs `--file PATH`.")
    return _throughput(file, f"Lines of `{Path(file).name}`, one stream", 1)


def _kept() -> Case:
    counts = {"ours: kept": 600_000, "ours, pure: kept": 600_000, "official: kept": 600_000}
    return Case(
        id="kept",
        title="600,000 futures kept in a list, Java producer's shape, one stream, all options at their defaults",
        kind="rate",
        runs={line: _run(line, shape="java", count=count) for line, count in counts.items()},
        against="official: kept",
        most_rounds=3,
        note="What an ordinary user writes: `futures.append(stream.send(log))`, and at the end a look at each. The "
        "official producer has no futures: the outcomes that its delivery callback gets are kept.",
    )


def _names() -> Case:
    counts = {
        "ours: send": 300_000,
        "ours: send_many": 300_000,
        "ours, pure: send": 40_000,
        "ours, pure: send_many": 40_000,
        OFFICIAL: 100_000,
    }
    runs = {line: _run(line, shape="names", count=count) for line, count in counts.items()}
    return Case(
        id="names",
        title="Logs of 12 fields out of 200 possible names, one stream",
        kind="rate",
        runs=runs | {"ours: send, same names": _run("ours: send", shape="fields=12", count=300_000)},
        against=OFFICIAL,
        note="Beside it as many fields of the same size, whose names are the same in each log.",
    )


def _lines() -> Case:
    counts = {
        "ours: send_lines": 1_500_000,
        "ours: send": 500_000,
        "ours, pure: send_lines": 200_000,
        OFFICIAL: 200_000,
        "java: send": 400_000,
    }
    return Case(
        id="lines",
        title="The lines of an access log, one field each, one stream",
        kind="rate",
        runs={line: _run(line, shape="lines", count=count) for line, count in counts.items()},
        against=OFFICIAL,
        note="`send_lines` reads a file in blocks of 1 MiB, which is part of its time; the others have the lines as "
        "text already.",
    )


_SMALL_RUN = Run(client="", way="send", streams=200, rate=1000, seconds=3, options={"linger_ms": LATENCY_LINGER_MS})


def _small() -> Case:
    runs = {
        line: dataclasses.replace(_SMALL_RUN, client=_run(line).client)
        for line in ("ours: send", "ours, pure: send", OFFICIAL, "java: send")
    }
    calls = _run("python_sdk: put_logs", streams=200, count=2000, options={"logs_a_call": 1})
    return Case(
        id="small",
        title=f"A request of one log: 200 streams, each with a log every 200 ms, `linger_ms` {LATENCY_LINGER_MS}",
        kind="small",
        runs=runs | {"python_sdk: put_logs": calls},
        note="The CPU is that of the whole client process, its wake-ups a thousand times a second to send included. "
        "`put_logs` sends one log a call, as fast as it goes.",
        most_rounds=3,
    )


#: Records of a round by library.
_RECORDS = {
    "integrations: logging": 60_000,
    "integrations: structlog": 60_000,
    "integrations: loguru": 40_000,
    "integrations: opentelemetry": 30_000,
    "python_sdk: logging": 10_000,
    "otlp: records": 20_000,
    "without LogHub: FileHandler": 60_000,
    "without LogHub: structlog": 60_000,
    "without LogHub: loguru": 20_000,
}
_SCRAPES = ("integrations: prometheus", "without LogHub: prometheus")


def _integrations() -> Iterator[Case]:
    runs = {_run(line).line: _run(line, count=count) for line, count in _RECORDS.items()}
    yield Case(
        id="integrations",
        title="Records of logging libraries: a message and the fields of an access log, one thread",
        kind="rate",
        runs=runs,
        against="python_sdk: logging",
        most_rounds=3,
        note="`python_sdk: logging` is its `QueuedLogHandler`, `otlp: records` OpenTelemetry's OTLP exporter "
        "behind its batching processor. What runs without LogHub writes the same fields into a file: `FileHandler` of "
        "the standard library, structlog its JSON by `WriteLoggerFactory`, loguru its text with `enqueue=True`.",
    )
    yield Case(
        id="integrations-latency",
        title="How long a call of a logging library takes, 2,000 records/s",
        kind="latency",
        runs={name: dataclasses.replace(run, count=0, rate=2000, seconds=3) for name, run in runs.items()},
        most_rounds=3,
    )
    yield Case(
        id="integrations-scrape",
        title="How long a scrape of Prometheus takes, 50 scrapes/s",
        kind="latency",
        runs={_run(line).line: _run(line, rate=50, seconds=3) for line in _SCRAPES},
        most_rounds=3,
        note="`generate_latest` of a registry with `LogHubCollector` alone, and of one with the default collectors of "
        "`prometheus_client`: process, platform, garbage.",
    )


#: Sync modes of the file channel; None stands for no channel.
_MODES: tuple[str | float | None, ...] = (None, "os", 1.0, "commit")


def durable_run(threads: int, mode: str | float | None) -> str:
    """Return the name of a run of the case ``durable``."""
    named = {None: "no channel", "os": "fsync os", 1.0: "fsync 1 s", "commit": "fsync commit"}[mode]
    return f"{threads} thread{'s' * (threads > 1)}, {named}"


def _durable() -> Iterator[tuple[str, Run]]:
    for threads in (1, 8):
        for mode in _MODES:
            run = Run(
                client="ours",
                way="durable",
                count=400_000,
                threads=threads,
                streams=threads,
                options={} if mode is None else {"fsync": mode},
                against=durable_run(threads, None),
            )
            yield durable_run(threads, mode), run


def _threads() -> Iterator[tuple[str, Run]]:
    for line, count in (("ours: send", 400_000), ("ours, pure: send", 60_000), (OFFICIAL, 200_000)):
        options = {} if line == OFFICIAL else {"to_the_end": True}
        for threads in (1, 2, 4, 10):
            run = _run(line, shape="java", streams=50, count=count, threads=threads, x=threads, options=options)
            yield f"{line}, {threads} thread{'s' * (threads > 1)}", run


def _latency(rate: int) -> Case:
    lines = ("ours: send", "ours, pure: send", OFFICIAL, "kafka: produce", "java: send")
    return Case(
        id=f"latency-{rate // 1000}k",
        title=f"Latency at {rate:,} logs/s, access log, `linger_ms` {LATENCY_LINGER_MS}",
        kind="latency",
        runs={line: _run(line, rate=rate, seconds=3, options={"linger_ms": LATENCY_LINGER_MS}) for line in lines},
        against=OFFICIAL,
        most_rounds=3,
    )


# How many times the other lines' logs these lines send, since they are faster.
_SHARES = {
    "ours: send": 2.0,
    "ours: send_many": 4.0,
    "ours: send_arrow": 4.0,
    "ours, pure: send": 0.3,
    OFFICIAL: 1.0,
}


def _shapes(axis: str, title: str, values: tuple[int, ...], count_of: Callable[[int], float]) -> Case:
    runs = {
        f"{line}, {axis}={value:,}": _run(line, shape=f"{axis}={value}", count=int(count_of(value) * share), x=value)
        for value in values
        for line, share in _SHARES.items()
    }
    heading = {"fields": "fields", "length": "bytes"}[axis]
    return Case(id=axis, title=title, kind="scaling", axis=heading, runs=runs, one_process=True, most_rounds=3)


def _streams() -> Iterator[tuple[str, Run]]:
    # Neither time nor memory ends a batch early, so slow and fast runs send the same batches.
    patient = {"linger_ms": 600_000, "total_size_in_bytes": 2**30}
    for line, count, most in (("ours: send", 300_000, 100_000), ("ours, pure: send", 100_000, 10_000)):
        for streams in (1, 10, 50, 1000, 10_000, 100_000):
            if streams <= most:
                yield (
                    f"{line}, streams={streams:,}",
                    _run(line, streams=streams, count=count, x=streams, options=patient),
                )


_ENCODED = {
    "java": ("logs", "columns", "lz4", "columns_lz4"),
    "web": ("logs", "columns", "lz4", "columns_lz4"),
    "lines": ("lines", "lz4", "lines_lz4"),
}


def _encode() -> Iterator[tuple[str, Run]]:
    for shape, ways in _ENCODED.items():
        for way in ways:
            count = 320_000 if way in ("columns", "lines") else 160_000
            yield f"{way}, {shape}", Run(client="encoding", way=way, shape=shape, count=count)
    for shape, ways in _ENCODED.items():
        for way in ways:
            if way not in ("lz4", "columns_lz4", "lines_lz4"):
                run = Run(client="encoding_pure", way=way, shape=shape, count=32_000)
                yield f"{way}, {shape}, pure", run


_OUTAGE_RUN = Run(
    client="",
    way="send",
    shape="java",
    streams=50,
    rate=20_000,
    seconds=20,
    options={"total_size_in_bytes": 64 * 2**20},
)


def _outage() -> Case:
    lines = ("ours: send", "ours, pure: send", OFFICIAL)
    return Case(
        id="outage",
        title="A server that does not answer for 10 s, 20,000 logs/s of the Java producer's shape",
        kind="outage",
        runs={line: dataclasses.replace(_OUTAGE_RUN, client=_run(line).client) for line in lines},
        most_rounds=1,
        note="A client has caught up when the number of its waiting logs is not above its maximum before the outage.",
    )


def _scaling() -> Iterator[Case]:
    yield Case(
        id="threads",
        title="Sender threads, Java producer's shape, 50 streams",
        kind="scaling",
        axis="sender threads",
        runs=dict(_threads()),
        against=f"{OFFICIAL}, 1 thread",
        note="Each thread keeps its futures to its end; they are waited for when all have sent.",
    )
    yield _shapes("fields", "Number of fields, 16 bytes each", (1, 3, 10, 30, 100), lambda n: 1_500_000 / (n + 10))
    yield _shapes("length", "Length of the value, one field", (8, 64, 512, 2048, 8192), lambda n: 2e8 / (n + 1000))
    yield Case(
        id="streams",
        title="Number of streams in turn, access log",
        kind="scaling",
        axis="streams",
        runs=dict(_streams()),
        one_process=True,
        most_rounds=1,
        note="Batches wait until the end, so that each stream is live: the more streams, the fewer logs a request. "
        "What the senders take is the cost of `send()`, and to live streams that behind the first log of each; the "
        "rest is that of the requests.",
    )
    yield Case(
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
    )


def all_cases(file: str | None = None) -> dict[str, Case]:
    """Return all cases by id; without a ``file`` the case ``file`` has no runs."""
    cases = [
        _throughput("java", "Java producer's shape: 8 fields, 576 bytes, 50 streams", 50),
        _throughput("web", "Access log: 6 fields, 223 bytes, one stream", 1),
        _throughput("wide", "40 fields, 956 bytes, one stream", 1, 0.25),
        _throughput("unicode", "Text that is not ASCII: 6 fields, 170 bytes, one stream", 1),
        _of_file(file),
        _kept(),
        _names(),
        _lines(),
        Case(
            id="encode",
            title="Encoding and compressing alone, one thread, no server",
            kind="rate",
            runs=dict(_encode()),
            one_process=True,
        ),
        _small(),
        *_integrations(),
        Case(
            id="durable",
            title="`send_many` of 100 logs behind a file channel, access log, a stream a thread",
            kind="rate",
            runs=dict(_durable()),
            against="no channel",
            one_process=True,
            most_rounds=3,
        ),
        _latency(10_000),
        _latency(50_000),
        *_scaling(),
        _outage(),
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
