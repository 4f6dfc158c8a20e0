"""The commands ``producer tail`` and ``pull``: print logs in the order of receipt, by the cursors of shards."""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterable, Iterator

from ..model.errors import AttemptError
from ..reading.errors import LogHubReadError
from ..reading.search import PAGE, Search
from ..text.names import CREATED_BY_A_WRITE
from ..wire.patterns import Pattern
from ..wire.read_log_group import Fields
from .exit_codes import ExitCode
from .loghub import LogHub
from .output import Writer, tell, writer
from .profiles import UsageError, resolve
from .progress import Progress
from .search import FIRST
from .times import time_of

#: The range of the search for the newest logs, seconds.
_SEARCHED_SECONDS = 3600
#: The number of polls between two searches for new shards.
_POLLS_PER_SHARD_LIST = 10
#: The limit of digits of LogHub's Unix seconds.
_DIGITS = 10


def tail(args: argparse.Namespace) -> int:
    """Print the newest logs, follow new ones if asked, and return the exit code."""
    left = _Left(args.limit)
    wanted = _pattern(args.grep)
    with LogHub(resolve(args, os.environ), args.timeout) as loghub:
        printed = writer(args.output, FIRST, stream=True)
        # Take the cursors first: no log is missed between the two, though one may be shown twice.
        following = _following(loghub, args.interval) if args.follow else None
        if following is None or not following.is_new:
            _print(printed, reversed(_newest(loghub, args.lines, wanted)), left)
        while following is not None and not left.none:
            logs = _polled(following)
            _print(printed, (log for log in logs if _fits(log, wanted)), left)
            if following.at_end and not left.none:
                time.sleep(args.interval)
        printed.close()
    return ExitCode.OK


def _following(loghub: LogHub, interval: float) -> _Following:
    """Return the cursors of a logstore. Wait for a logstore that its first write will create.

    :raises LogHubReadError: the logstore does not exist, and no write creates it.
    """
    start = "end"
    while True:
        try:
            return _Following(loghub, start)
        except LogHubReadError as error:
            if CREATED_BY_A_WRITE not in str(error):
                raise
            if start == "end":
                tell(f"{error.__cause__ or error}; waiting for its first write")
            start = "begin"
        time.sleep(interval)


def _newest(loghub: LogHub, count: int, wanted: Pattern[str] | None) -> list[Fields]:
    """Return the newest logs that match, newest first."""
    found: list[Fields] = []
    now = int(time.time())
    search = Search(now - _SEARCHED_SECONDS, now + 1)
    for offset in itertools.count(0, PAGE):
        if len(found) >= count:
            break
        page = loghub.searching.logs(search, newest_first=True, offset=offset)
        found += (log for log in page if _fits(log, wanted))
        if len(page) < PAGE:
            break
    return found[:count]


def _polled(following: _Following) -> list[Fields]:
    """Return the new logs; none in an outage, which is reported once.

    :raises LogHubReadError: a permanent error.
    """
    try:
        logs = following.poll()
    except LogHubReadError as error:
        if not (isinstance(error.__cause__, AttemptError) and error.__cause__.retriable):
            raise
        if not following.at_outage:
            tell(f"{error}; still following")
        following.at_end = following.at_outage = True
        return []
    following.at_outage = False
    return logs


class _Following:
    """The cursors of all shards.

    :param start: ``end``, or ``begin`` for a logstore that was just created.
    :ivar is_new: True if the logstore was just created.
    :ivar at_end: True if the last poll found nothing.
    :ivar at_outage: True if the last poll got no answer.
    """

    def __init__(self, loghub: LogHub, start: str = "end") -> None:
        self._loghub, self.is_new = loghub, start == "begin"
        self._cursors = {shard: loghub.reader.cursor(shard, start) for shard in loghub.reader.shards()}
        self._polls = 0
        self.at_end = self.at_outage = False

    def poll(self) -> list[Fields]:
        """Return the logs received since the last poll, in order of time."""
        self._polls += 1
        if self._polls % _POLLS_PER_SHARD_LIST == 0:
            for shard in self._loghub.reader.shards():
                if shard not in self._cursors:  # a split made the shard: all in it is new
                    self._cursors[shard] = self._loghub.reader.cursor(shard, "begin")
        pulled = {shard: self._loghub.pull(shard, cursor) for shard, cursor in self._cursors.items()}
        # Advance only after all shards answered: logs pulled before a failure are pulled again.
        self._cursors |= {shard: each.cursor for shard, each in pulled.items()}
        logs = [log for each in pulled.values() for log in each.content]
        self.at_end = not logs
        return sorted(logs, key=_second)


def _second(log: Fields) -> int:
    """Return the log's time in Unix seconds; 0 if a field of that name holds no time."""
    text = log["__time__"]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0


def pull(args: argparse.Namespace) -> int:
    """Print all logs of shards, and return the exit code."""
    left, starts = _Left(args.limit), (_start("--from", args.begin), _start("--to", args.end))
    with LogHub(resolve(args, os.environ), args.timeout) as loghub, Progress("logs") as progress:
        printed = writer(args.output, FIRST, stream=args.output != "table")
        for shard in _shards(loghub, args.shard):
            begin, end = (loghub.reader.cursor(shard, start) for start in starts)
            for logs in _all_of(loghub, shard, begin, end):
                progress.add(_print(printed, logs, left), f"shard {shard}")
                if left.none:
                    break
            if left.none:
                break
        printed.close()
    return ExitCode.OK


def _shards(loghub: LogHub, wanted: list[str] | None) -> list[str]:
    """Return the wanted shards; None for all.

    :raises UsageError: a shard does not exist.
    """
    existing = loghub.reader.shards()
    for shard in wanted or ():
        if shard not in existing:
            raise UsageError(f"--shard {shard}: there is no such shard; the shards are {', '.join(existing)}")
    return wanted or existing


def _start(flag: str, text: str) -> str | int:
    """Return ``begin``, ``end``, or a time in Unix seconds.

    :raises UsageError: the text is not a time.
    """
    if text in ("begin", "end"):
        return text
    try:
        return time_of(text, time.time())
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{flag} {error}") from error


def _all_of(loghub: LogHub, shard: str, cursor: str, end: str) -> Iterator[Iterable[Fields]]:
    at_end = False
    while not at_end:
        pulled = loghub.pull(shard, cursor, end)
        cursor, at_end = pulled.cursor, pulled.at_end
        yield pulled.content


class _Left:
    """The number of logs that may still be printed; None for no limit."""

    def __init__(self, limit: int | None) -> None:
        self.count = limit

    @property
    def none(self) -> bool:
        return self.count == 0


def _print(printed: Writer, logs: Iterable[Fields], left: _Left) -> int:
    """Print logs up to the limit, and return their number."""
    taken = list(itertools.islice(logs, left.count))
    if left.count is not None:
        left.count -= len(taken)
    printed.write(taken)
    return len(taken)


def _pattern(text: str | None) -> Pattern[str] | None:
    """Compile the pattern of ``--grep``; None if there is none.

    :raises UsageError: the text is not a regular expression.
    """
    try:
        return None if text is None else Pattern(text, option="--grep", outcome="the log is shown")
    except ValueError as error:
        raise UsageError(f"--grep {text}: {error.__cause__}") from error


def _fits(log: Fields, wanted: Pattern[str] | None) -> bool:
    return wanted is None or any(wanted.search(value, at_limit=True) for value in log.values())
