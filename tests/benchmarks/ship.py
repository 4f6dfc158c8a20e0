"""``producer ship`` into a null server: text, access log and JSON, by Spark on two cores and by two processes.

``python -m tests.benchmarks.ship`` runs the whole command, by turns, and prints for each way the median of the lines'
megabytes a second after the engine is up, as its table tells, and of the CPU seconds of a gigabyte, in which the start
of Python and Java is.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from examples.ship_demo.samples import write_access_logs
from tests.benchmarks.server import null_server, take_counts, unmeasured

_ENGINES = {"spark": ("--engine=spark", "--master=local[2,4]"), "local": ("--engine=local", "--workers=2")}
#: Seconds that one command may take.
PATIENCE = 300
_RATE = re.compile(r"([\d,.]+) MB/s")


def write_files(folder: Path, megabytes: int) -> dict[str, Path]:
    """The files to ship, by parser."""
    write_access_logs(folder)
    sample = (folder / "access.log").read_bytes()
    access, objects = folder / "text.log", folder / "json.log"
    access.write_bytes(sample * (megabytes * 1_000_000 // len(sample) + 1))
    line = {"time": "2024-01-01T00:00:00Z", "level": "INFO", "ms": 12.5, "user": {"id": 7}, "message": "it was said"}
    some = "".join(json.dumps(line | {"number": number}) + "\n" for number in range(10_000)).encode()
    objects.write_bytes(some * (megabytes * 1_000_000 // len(some) + 1))
    return {"text": access, "apache": access, "json": objects}


def ship(port: int, engine: str, parser: str, path: Path) -> tuple[float, float]:
    """Run the command; its rate, and its CPU seconds a gigabyte."""
    target = [f"--endpoint=http://127.0.0.1:{port}", "--project=p", "--logstore=bench"]
    keys = ["--access-key-id=a", "--access-key-secret=s"]
    command = [sys.executable, "-m", "producer", "ship", str(path), f"--parser={parser}", *_ENGINES[engine]]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, *target, *keys],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=unmeasured() | {"COLUMNS": "200"},
        timeout=PATIENCE,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = _RATE.search(done.stdout)
    assert found is not None, done.stdout
    assert take_counts(port)["raw_bytes"] > path.stat().st_size
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(found[1].replace(",", "")), seconds / path.stat().st_size * 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every way, by turns, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ship", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", choices=_ENGINES, default=list(_ENGINES))
    args = parser.parse_args(arguments)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, null_server() as port:
        files = write_files(Path(folder), args.megabytes)
        for _ in range(args.rounds):
            for engine in args.engines:
                for name, path in files.items():
                    found.setdefault((engine, name), []).append(ship(port, engine, name, path))
    for (engine, name), results in found.items():
        rate, seconds = (statistics.median(each) for each in zip(*results, strict=True))
        print(f"{engine:6} {name:7} {rate:8.1f} MB/s {seconds:8.1f} CPU s/GB")


if __name__ == "__main__":
    main()
