"""The arguments of ``producer search``, ``count``, ``sql`` and ``context``."""

from __future__ import annotations

import argparse

from ..parsing import positive_integer, set_examples, whole_number
from .target import WHERE, add_output, add_target, add_timeout

_TIMES = (
    "Times are `now`, a time ago (-30s, -15m, -1h, -7d, -2w), Unix seconds, or ISO 8601; without a zone they are\n"
    "in this machine's zone."
)


def search(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer search``."""
    parser.add_argument("query", nargs="?", default="*", metavar="QUERY", help="keywords; default: all logs")
    add_range(parser)
    parser.add_argument(
        "-n", "--limit", type=positive_integer, default=100, metavar="N", help="at most N logs; default: %(default)s"
    )
    parser.add_argument("--oldest", action="store_true", help="the oldest logs instead of the newest")
    parser.add_argument("--pack-meta", action="store_true", help="add __pack_meta__, which `context` needs")
    _finish(
        parser,
        "producer search 'level: ERROR and timeout' --from -1h -p my-project -l app",
        "producer search --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z --limit 1000 --output csv",
    )


def count(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer count``."""
    parser.add_argument("query", nargs="?", default="*", metavar="QUERY", help="keywords; default: all logs")
    add_range(parser)
    parser.add_argument("--histogram", action="store_true", help="count each part of the range")
    _finish(
        parser,
        "producer count 'level: ERROR' --from -1d -p my-project -l app",
        "producer count --histogram --from -1h --output csv",
    )


def sql(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer sql``."""
    parser.add_argument("statement", metavar="SQL", help="SELECT … for all logs, or QUERY | SELECT …")
    add_range(parser)
    _finish(
        parser,
        "producer sql 'SELECT level, count(*) AS logs GROUP BY level' --from -1d -p my-project -l app",
        "producer sql 'status: 500 | SELECT host, count(*) AS n GROUP BY host ORDER BY n DESC' --output csv",
    )


def context(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer context``."""
    parser.add_argument("pack_id", metavar="PACK_ID", help="the log's __tag__:__pack_id__")
    parser.add_argument("pack_meta", metavar="PACK_META", help="the log's __pack_meta__, from `search --pack-meta`")
    for letter, name, text in (("-B", "--before", "logs before it"), ("-A", "--after", "logs after it")):
        parser.add_argument(
            letter, name, type=whole_number, default=10, metavar="N", help=f"{text}; default: %(default)s"
        )
    _finish(
        parser,
        "producer search timeout --pack-meta --limit 1 --output json -p my-project -l app",
        "producer context 5F0C3A9177E208B4-1 '0|MTI=|3' -B 5 -A 5 -p my-project -l app",
        times="",
    )


def add_range(parser: argparse.ArgumentParser) -> None:
    """Add ``--from`` and ``--to``."""
    parser.add_argument("--from", dest="begin", default="-15m", metavar="TIME", help="default: %(default)s")
    parser.add_argument("--to", dest="end", default="now", metavar="TIME", help="default: %(default)s")


def _finish(parser: argparse.ArgumentParser, *examples: str, times: str = _TIMES) -> None:
    add_output(parser)
    add_timeout(parser)
    add_target(parser)
    set_examples(parser, *examples, more=f"{times}\n\n{WHERE}".strip())
