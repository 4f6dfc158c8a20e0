"""The commands ``producer tail`` and ``pull``: logs in the order in which they came, by the cursors of shards."""

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

#: Seconds: how far back the newest logs are looked for.
_BACK = 3600
#: Looks after which new shards are looked for.
_LOOKS = 10
#: Of seconds as LogHub counts them, at most.
_DIGITS = 10


def tail(args: argparse.Namespace) -> int:
    """The newest logs, and those that come; the exit code."""
    left = _Left(args.limit)
    wanted = _pattern(args.grep)
    with LogHub(resolve(args, os.environ), args.timeout) as loghub:
        printed = writer(args.output, FIRST, stream=True)
        # Before the newest are looked for: nothing falls between the two, though a log may be shown twice.
        following = _following(loghub, args.interval) if args.follow else None
        if following is None or not following.is_new:
            _print(printed, reversed(_newest(loghub, args.lines, wanted)), left)
        while following is not None and not left.none:
            logs = _looked(following)
            _print(printed, (log for log in logs if _fits(log, wanted)), left)
            if following.at_end and not left.none:
                time.sleep(args.interval)
        printed.close()
    return ExitCode.OK


def _following(loghub: LogHub, interval: float) -> _Following:
    """The cursors of a logstore, which is waited for where the first write makes it: then all in it is new.

    :raises LogHubReadError: it is not there, and nothing makes it.
    """
    start = "end"
    while True:
        try:
            return _Following(loghub, start)
        except LogHubReadError as error:
            if CREATED_BY_A_WRITE not in str(error):
                raise
            if start == "end":
                tell(f"{error.__cause__ or error}; following begins with it")
            start = "begin"
        time.sleep(interval)


def _newest(loghub: LogHub, count: int, wanted: Pattern[str] | None) -> list[Fields]:
    """The newest logs that fit, the newest first."""
    found: list[Fields] = []
    now = int(time.time())
    search = Search(now - _BACK, now + 1)
    for offset in itertools.count(0, PAGE):
        if len(found) >= count:
            break
        page = loghub.searching.logs(search, newest_first=True, offset=offset)
        found += (log for log in page if _fits(log, wanted))
        if len(page) < PAGE:
            break
    return found[:count]


def _looked(following: _Following) -> list[Fields]:
    """What has come; nothing in an outage, which is told once.

    :raises LogHubReadError: something that does not pass.
    """
    try:
        logs = following.look()
    except LogHubReadError as error:
        if not (isinstance(error.__cause__, AttemptError) and error.__cause__.retriable):
            raise
        if not following.at_outage:
            tell(f"{error}; following goes on")
        following.at_end = following.at_outage = True
        return []
    following.at_outage = False
    return logs


class _Following:
    """The cursors of all shards.

    :param start: ``end``, or ``begin`` for a logstore that was not there a moment ago.
    :ivar is_new: whether it was not.
    :ivar at_end: the last look found nothing.
    :ivar at_outage: it got no answer.
    """

    def __init__(self, loghub: LogHub, start: str = "end") -> None:
        self._loghub, self.is_new = loghub, start == "begin"
        self._cursors = {shard: loghub.reader.cursor(shard, start) for shard in loghub.reader.shards()}
        self._looks = 0
        self.at_end = self.at_outage = False

    def look(self) -> list[Fields]:
        """What has come since the last look, by time."""
        self._looks += 1
        if self._looks % _LOOKS == 0:
            for shard in self._loghub.reader.shards():
                if shard not in self._cursors:  # of a split: all in it is new
                    self._cursors[shard] = self._loghub.reader.cursor(shard, "begin")
        pulled = {shard: self._loghub.pull(shard, cursor) for shard, cursor in self._cursors.items()}
        # Only now: what a look has got before another shard failed is got again.
        self._cursors |= {shard: each.cursor for shard, each in pulled.items()}
        logs = [log for each in pulled.values() for log in each.content]
        self.at_end = not logs
        return sorted(logs, key=_second)


def _second(log: Fields) -> int:
    """When it was; 0 for a log with a field of its own of that name, which is no time."""
    text = log["__time__"]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0


def pull(args: argparse.Namespace) -> int:
    """All logs of shards; the exit code."""
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
    """
    :raises UsageError: there is no such shard.
    """
    there = loghub.reader.shards()
    for shard in wanted or ():
        if shard not in there:
            raise UsageError(f"--shard {shard}: there is none; the shards are {', '.join(there)}")
    return wanted or there


def _start(flag: str, text: str) -> str | int:
    """
    :raises UsageError: it is no time.
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
    """How many logs may still be printed; None for any number."""

    def __init__(self, limit: int | None) -> None:
        self.count = limit

    @property
    def none(self) -> bool:
        return self.count == 0


def _print(printed: Writer, logs: Iterable[Fields], left: _Left) -> int:
    """Print as many as may be; how many these were."""
    taken = list(itertools.islice(logs, left.count))
    if left.count is not None:
        left.count -= len(taken)
    printed.write(taken)
    return len(taken)


def _pattern(text: str | None) -> Pattern[str] | None:
    """
    :raises UsageError: it is no regular expression.
    """
    try:
        return None if text is None else Pattern(text, option="--grep", outcome="the log is shown")
    except ValueError as error:
        raise UsageError(f"--grep {text}: {error.__cause__}") from error


def _fits(log: Fields, wanted: Pattern[str] | None) -> bool:
    return wanted is None or any(wanted.search(value, at_limit=True) for value in log.values())
