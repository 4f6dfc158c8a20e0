"""The commands ``producer search``, ``count``, ``sql`` and ``context``."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator

from ..reading.search import PAGE, LogstoreSearch, Search, command_of, is_paged
from ..text.plural import counted
from ..wire.read_log_group import Fields
from .exit_codes import ExitCode
from .loghub import LogHub
from .output import Writer, form_of, print_rows, tell, writer
from .profiles import UsageError, resolve
from .times import shown, time_of

#: The first columns of a table of logs.
FIRST = ("__time__", "__source__", "__topic__")
_SQL = re.compile(r"[\s(]*(?:SELECT|WITH)\b", re.IGNORECASE)


def search(args: argparse.Namespace) -> int:
    """Print the logs that match, in order of time, and return the exit code."""
    if not is_paged(args.query):  # a result of SQL has no order of time
        raise UsageError("the query has SQL after |: use `producer sql`, or quote a text that contains |")
    query = f"{args.query}|with_pack_meta" if args.pack_meta else args.query
    with LogHub(resolve(args, os.environ), args.timeout) as loghub:
        wanted = _search(args, query)
        pages = _pages(loghub.searching, wanted, args.limit, newest_first=not args.oldest)
        found = _write(writer(args.output, FIRST), pages, newest_first=not args.oldest)
    if not found:
        tell("no log of that range matches")
    return ExitCode.OK


def _write(printed: Writer, pages: Iterator[list[Fields]], *, newest_first: bool) -> int:
    """Write the logs in order of time, and return their number. If a page fails, those before it are written."""
    found, kept = 0, list[Fields]()
    failure: BaseException | None = None
    while page := _next(pages):
        if isinstance(page, BaseException):
            failure = page
            break
        found += len(page)
        if newest_first:
            kept += page
        else:
            printed.write(page)
    if found or failure is None:
        printed.write(reversed(kept))
        printed.close()
    if failure is not None:
        if found:
            logs = counted(found, "log was", "logs were")
            tell(f"only the {'newest' if newest_first else 'oldest'} {logs} found before this:")
        raise failure
    return found


def _next(pages: Iterator[list[Fields]]) -> list[Fields] | BaseException | None:
    """Return the next page, the error of reading it, or None at the end. Errors of printing are not caught here."""
    try:
        return next(pages, None)
    except BaseException as error:  # noqa: BLE001  # also an interrupt: the logs found so far are printed
        return error


def _pages(searching: LogstoreSearch, wanted: Search, limit: int, *, newest_first: bool) -> Iterator[list[Fields]]:
    """Yield up to ``limit`` logs in pages, and report if there are more."""
    offset = 0
    while offset < limit:
        page = searching.logs(wanted, newest_first=newest_first, offset=offset, line=min(PAGE, limit - offset))
        yield page
        offset += len(page)
        if len(page) < PAGE and offset < limit:
            return
    if searching.logs(wanted, newest_first=newest_first, offset=offset, line=1):
        tell(f"the {'newest' if newest_first else 'oldest'} {counted(limit, 'log')}; there are more (--limit)")


def count(args: argparse.Namespace) -> int:
    """Print the number of logs that match, and return the exit code."""
    with LogHub(resolve(args, os.environ), args.timeout) as loghub:
        parts = loghub.searching.histogram(_search(args, args.query))
    if args.histogram:
        time_as = shown if form_of(args.output) == "table" else int
        times = ((time_as(part["from"]), time_as(part["to"]), part["count"]) for part in parts)
        rows = ({"from": begin, "to": end, "count": number} for begin, end, number in times)
        print_rows(args.output, rows, ("from", "to", "count"))
        return ExitCode.OK
    total = sum(int(part["count"]) for part in parts)
    if args.output in (None, "table"):
        print(total)
    else:
        print_rows(args.output, [{"count": total}])
    return ExitCode.OK


def sql(args: argparse.Namespace) -> int:
    """Print the rows of an SQL statement, and return the exit code."""
    statement = f"* | {args.statement}" if _is_alone(args.statement) else args.statement
    with LogHub(resolve(args, os.environ), args.timeout) as loghub:
        rows = loghub.searching.logs(_search(args, statement))
    # The service adds time and source to every row.
    print_rows(args.output, ({name: row[name] for name in row if name not in FIRST[:2]} for row in rows))
    return ExitCode.OK


def _is_alone(statement: str) -> bool:
    """Return True if no query precedes the SQL. The SQL itself may contain ``|``, in a text or as ``||``."""
    command = command_of(statement)
    return not command or bool(_SQL.match(statement) and not _SQL.match(command))


def context(args: argparse.Namespace) -> int:
    """Print the logs that the sender of a log sent before and after it, and return the exit code."""
    with LogHub(resolve(args, os.environ), args.timeout) as loghub:
        logs = loghub.context(args.pack_id, args.pack_meta, args.before, args.after)
    print_rows(args.output, logs, ("__index_number__", *FIRST))
    return ExitCode.OK


def _search(args: argparse.Namespace, query: str) -> Search:
    begin, end = range_of(args)
    return Search(begin, end, query)


def range_of(args: argparse.Namespace) -> tuple[int, int]:
    """Return the range of time in Unix seconds. ``now`` as the end includes the current second.

    :raises UsageError: a time is invalid, or the range is empty.
    """
    now = time.time()
    found = []
    for flag, text in (("--from", args.begin), ("--to", args.end)):
        try:
            found.append(time_of(text, now) + (text == "now"))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{flag} {error}") from error
    begin, end = found
    if begin >= end:
        raise UsageError(f"--from {args.begin} must be before --to {args.end}")
    return begin, end
