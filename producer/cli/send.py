"""The command ``producer send``: send lines, JSON lines or CSV to a logstore, and report how many were delivered."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from ..client.producer import Producer
from ..model.config import MAX_BATCH_SIZE_IN_BYTES, HttpConfig
from ..model.errors import InvalidArgumentError
from ..model.results import Result
from ..runtime.locks import Lock
from .exit_codes import ExitCode
from .output import tell
from .profiles import Settings, UsageError, resolve
from .progress import Progress
from .read_back import ReadBack, Streams, read_back

_MAX_ATTEMPT_MS = 70_000
#: The limit of lines that cannot be sent, and of reasons of failures, that are printed one by one.
_MOST_PRINTED = 5

Log = dict[str, object]


class _Tally:
    """The numbers of logs by outcome.

    :ivar delivered: the number of acknowledged logs.
    :ivar failed: the number of failed logs by reason.
    :ivar invalid: the number of lines that are not logs.
    """

    def __init__(self) -> None:
        self.delivered = self.invalid = 0
        self.failed = Counter[str]()
        self._lock = Lock()  # guards delivered and failed

    def completed(self, result: Result) -> None:
        """Count a completed log. The producer's threads call it."""
        with self._lock:
            if result.successful:
                self.delivered += 1
            else:
                self.failed[f"{result.error_code}: {result.error_message}"] += 1

    def refuse(self, number: int, reason: object) -> None:
        """Count and report a line that is not a log."""
        self.invalid += 1
        if self.invalid <= _MOST_PRINTED:
            tell(f"line {number}: {reason}")

    def outcome(self) -> ExitCode:
        """Print the numbers, and return the exit code."""
        lost = sum(self.failed.values())
        parts = [f"{self.delivered} delivered"]
        parts += [f"{lost} not delivered"] * (lost > 0) + [f"{self.invalid} not sent"] * (self.invalid > 0)
        tell(", ".join(parts))
        for reason, count in self.failed.most_common(_MOST_PRINTED):
            tell(f"{count} failed: {reason}")
        return ExitCode.FAILED if lost or self.invalid else ExitCode.OK


def run(args: argparse.Namespace) -> int:
    """Run ``producer send``, and return the exit code."""
    settings = resolve(args, os.environ)
    tally = _Tally()
    try:
        with _producer(settings, args.timeout) as producer:
            place = settings.needed("project"), settings.needed("logstore")
            streams = Streams(producer, place, args.topic, args.source)
            try:
                _send(streams, _logs(args, tally), tally)
                producer.flush()
            except KeyboardInterrupt:
                if producer.stats().pending:
                    tell(
                        f"waiting up to {producer.config.drain_timeout_ms / 1000:g} s for accepted logs to be delivered"
                    )
                raise
    except KeyboardInterrupt:
        tally.outcome()
        raise
    return tally.outcome()


def _producer(settings: Settings, timeout: float) -> Producer:
    settings.check_given("project", "logstore")
    milliseconds = max(1, int(timeout * 1000))  # 0 would be no limit
    config = settings.producer_config(
        name="send",
        linger_ms=200,
        retries=1_000_000,
        delivery_timeout_ms=milliseconds,
        # The limit also holds for a server that never answers.
        http=HttpConfig(attempt_timeout_ms=min(milliseconds, _MAX_ATTEMPT_MS)),
        max_block_ms=-1,
        # The wait after an interrupt; otherwise `flush` has waited for everything.
        drain_timeout_ms=1000,
    )
    producer = Producer(settings.project_config(), config=config)
    producer._losses.mute()
    return producer


def _send(streams: Streams, logs: Iterable[tuple[int, Log | ReadBack]], tally: _Tally) -> None:
    with Progress("logs", rows=False) as progress:
        for number, log in logs:
            try:
                if isinstance(log, ReadBack):
                    streams.of(log).send(log.item, callback=tally.completed)
                else:
                    streams.plain.send(log, callback=tally.completed)
            except InvalidArgumentError as error:
                tally.refuse(number, error)
            progress.add(1)


def _logs(args: argparse.Namespace, tally: _Tally) -> Iterator[tuple[int, Log | ReadBack]]:
    """Yield each log with the number of its line, from 1."""
    named = args.line if args.line != ["-"] else []
    lines: Iterable[str] = named or _standard_input(newline="" if args.format == "csv" else "\n")
    if args.format == "csv":
        return _csv(lines, tally)
    read = _json if args.format == "json" else _line
    return _each(lines, read, tally)


def _each(
    lines: Iterable[str], read: Callable[[str], Log | ReadBack | None], tally: _Tally
) -> Iterator[tuple[int, Log | ReadBack]]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text:
            continue
        try:
            log = read(text)
        except ValueError as error:
            tally.refuse(number, error)
            continue
        if log is not None:
            yield number, log


def _line(text: str) -> Log:
    return {"content": text}


def _json(text: str) -> Log | ReadBack | None:
    """Parse one object; None for a line with only a bracket of the array that ``--output json`` prints."""
    if text in ("[", "]", "[]"):
        return None
    try:
        log = json.loads(text.removesuffix(","))
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if not isinstance(log, dict):
        raise ValueError(
            f"must be a JSON object, got {type(log).__name__}"
        )  # an error of the line, as those of json.loads
    return read_back(log)


def _csv(lines: Iterable[str], tally: _Tally) -> Iterator[tuple[int, Log]]:
    """Yield each row's log with the number of its line.

    :raises UsageError: the first line names no fields.
    """
    csv.field_size_limit(MAX_BATCH_SIZE_IN_BYTES)
    reader = csv.reader(lines)
    try:
        names = next(reader, [])
    except csv.Error as error:
        raise UsageError(f"the first line names no fields: {error}") from error
    if names and len(set(names)) < len(names):
        raise UsageError(f"the first line names a field twice: {', '.join(names)}")
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            tally.refuse(reader.line_num, error)
            continue
        if len(values) == len(names):
            yield reader.line_num, dict(zip(names, values, strict=True))
        elif values:
            tally.refuse(reader.line_num, f"{len(values)} values for {len(names)} fields")


def _standard_input(*, newline: str) -> TextIO:
    """Return the standard input as UTF-8.

    :param newline: the line end; empty to leave line ends to the reader of CSV.
    :raises UsageError: there is no standard input.
    """
    if sys.stdin is None:
        raise UsageError("there is no standard input: give LINE")
    if sys.stdin.isatty():
        tell("reading the terminal: one log a line, end with Ctrl-D")
    stdin = sys.stdin
    reconfigure = getattr(stdin, "reconfigure", None)
    if reconfigure is not None:
        # As in send_lines, invalid bytes become backslash escapes, and the byte order mark is dropped.
        reconfigure(encoding="utf-8-sig", errors="backslashreplace", newline=newline)
    return stdin
