"""Ship real log files through Spark and the producer to an embedded LogHub, and prove that they arrived.

The proof does not trust the job: other code reads the files once more, and the logstore is read back through the
protocol. Run as ``python -m examples.ship_demo [--input PATH] [--keep]``, or by ``make run``.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from producer.model.config import ProjectConfig
from producer.model.errors import ProducerError
from producer.server import LogHubServer
from producer.ship.errors import InputError
from producer.ship.files.find import Found, Search
from producer.ship.job import ShipJob
from producer.ship.report import counted, summary
from producer.ship.shipment import ship_search
from producer.ship.spark_engine import running_spark
from producer.spark.logstore import LogstoreClient
from producer.spark.options import Target
from producer.text.printable import readable

from .samples import write_access_logs
from .verify import Digest, differences, digests_of_files, digests_of_logs
from .whole import all_logs

_PROJECT, _LOGSTORE = "demo", "machine-logs"
_DESCRIPTION = "Ship real log files to an embedded LogHub, and prove that they arrived."

#: The embedded server keeps its logs in memory, so the machine's own log files are limited to this size, in bytes.
_MOST_BYTES = 256 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Ship, read back and compare.

    Return 0 if every line arrived once and unchanged, 1 if not, and 2 if there was nothing to ship.
    """
    parser = argparse.ArgumentParser(prog="python -m examples.ship_demo", description=_DESCRIPTION)
    parser.add_argument("--input", nargs="+", metavar="PATH", help="files, directories or globs; default: /var/log")
    parser.add_argument("--keep", action="store_true", help="keep the embedded LogHub up until Ctrl-C")
    args = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="loghub-producer-demo-") as folder:
            return _demonstrate(_choose(args.input, Path(folder), console), console, keep=args.keep)
    except ProducerError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 2


def _choose(paths: Sequence[str] | None, folder: Path, console: Console) -> Found:
    if paths:
        named = Search(paths).all()
        if not named.files:
            raise InputError(f"there are no files to ship in {', '.join(paths)}")
        return named
    found = _newest(Search(["/var/log"]).all() if Path("/var/log").is_dir() else Found((), ()))
    if found.size:
        return found
    console.print("there are no readable logs under /var/log: making access logs up")
    write_access_logs(folder)
    return Search([str(folder)]).all()


def _newest(found: Found) -> Found:
    """Return the newest files, as many as the size limit allows."""
    left = _MOST_BYTES
    files, skipped = [], list(found.skipped)
    for file in sorted(found.files, key=lambda each: Path(each.path).stat().st_mtime, reverse=True):
        # The decompressed size is unknown: assume a generous ratio.
        size = file.size if file.compression is None else file.size * 20
        if size <= left:
            files.append(file)
            left -= size
        else:
            skipped.append((file.path, "too much for a demonstration"))
    return Found(tuple(sorted(files, key=lambda each: each.path)), tuple(skipped))


def _demonstrate(found: Found, console: Console, *, keep: bool) -> int:
    console.print(f"shipping {counted(len(found.files), 'file')}, {counted(found.size, 'byte')} on disk")
    for path, reason in found.skipped:
        console.print(readable(f"  not {path}: {reason}"), markup=False, style="dim")
    with LogHubServer() as server:
        console.print(f"embedded LogHub listens on {server.endpoint}")
        project = ProjectConfig(
            _PROJECT,
            endpoint=server.endpoint,
            access_key_id=server.access_key_id,
            access_key_secret=server.access_key_secret,
        )
        failure = _ship(found, project, console)
        console.print("reading the logstore back through the protocol, and the files once more")
        with LogstoreClient(Target(project, _LOGSTORE)) as client:
            held = digests_of_logs(all_logs(client))
        code = verdict(found, held, failure, console)
        if keep:
            keep_up(server, console)
    return code


def keep_up(server: LogHubServer, console: Console) -> None:
    """Print the server's address and how to query it; return at Ctrl-C or SIGTERM."""
    target = f"--endpoint {server.endpoint} --project {_PROJECT} --logstore {_LOGSTORE}"
    key = f"--access-key-id {server.access_key_id} --access-key-secret {server.access_key_secret}"
    console.print(f"LogHub goes on at {server.endpoint} until Ctrl-C", markup=False)
    console.print(f"look into it at {server.endpoint}/console in a browser, or with", markup=False)
    console.print(f"  .venv/bin/producer pull --limit 5 {target} {key}", markup=False)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("LogHub has ended, and what it held is gone")


class _Given(Search):
    """A search that has found its files."""

    def __init__(self, found: Found) -> None:
        super().__init__([])
        self._found = found
        self.found_bytes = found.size

    def take(self) -> Found:
        found, self._found = self._found, Found((), ())
        return found


def _ship(found: Found, project: ProjectConfig, console: Console) -> str | None:
    job = ShipJob(project=project, logstore=_LOGSTORE, file_offset=True, producer={"linger_ms": "200"})
    with running_spark(None) as engine:
        shipment = ship_search(engine, _Given(found), job, console=console)
    console.print(summary(shipment))
    return shipment.failure


def verdict(found: Found, held: dict[str, Digest], failure: str | None, console: Console) -> int:
    """Compare both sides, print the outcome, and return the exit code."""
    read = digests_of_files(found.files)
    problems = differences(read, held)
    if failure is not None:
        problems.insert(0, f"the job failed: {failure}")
    for problem in problems:
        console.print(problem, style="red", markup=False)
    lines = sum(digest.lines for digest in read.values())
    extent = f"{counted(lines, 'line')} of {counted(len(read), 'file')}"
    whole = extent if lines == 1 else f"all {extent}"
    if problems:
        console.print(f"FAILED: {counted(len(problems), 'difference')} in {extent}", style="bold red")
        return 1
    console.print(f"OK: {whole} arrived, once, unchanged", style="bold green")
    return 0
