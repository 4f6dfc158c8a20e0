"""The arguments of ``producer tail`` and ``pull``."""

from __future__ import annotations

import argparse

from ..parsing import positive_integer, positive_seconds, set_examples, whole_number
from .target import WHERE, add_output, add_target, add_timeout


def tail(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer tail``."""
    parser.add_argument("-f", "--follow", action="store_true", help="follow new logs until Ctrl-C")
    parser.add_argument(
        "-n",
        "--lines",
        type=whole_number,
        default=10,
        metavar="N",
        help="how many logs of the last hour; default: %(default)s",
    )
    parser.add_argument("--grep", metavar="REGEX", help="only logs with a value that contains a match")
    parser.add_argument("--limit", type=positive_integer, metavar="N", help="stop after N logs")
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=1.0,
        metavar="SECONDS",
        help="time between two polls; default: %(default)s",
    )
    add_output(parser)
    add_timeout(parser)
    add_target(parser)
    set_examples(
        parser,
        "producer tail -f -p my-project -l app",
        "producer tail -f --grep 'timeout|refused' --output jsonl -p my-project -l app",
        more=f"Logs are followed by the cursors of the shards, which need no index.\n\n{WHERE}",
    )


def pull(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer pull``."""
    parser.add_argument("--shard", action="append", metavar="N", help="only this shard; may be repeated")
    parser.add_argument(
        "--from", dest="begin", default="begin", metavar="TIME", help="received since TIME; default: all logs"
    )
    parser.add_argument("--to", dest="end", default="end", metavar="TIME", help="received before TIME; default: now")
    parser.add_argument("--limit", type=positive_integer, metavar="N", help="stop after N logs")
    add_output(parser)
    add_timeout(parser)
    add_target(parser)
    set_examples(
        parser,
        "producer pull -p my-project -l app > app.jsonl",
        "producer pull --shard 0 --shard 1 --from -1h --to now --output csv -p my-project -l app",
        more=f"Times have the forms of `search`, and are times of receipt. Progress is shown on a terminal.\n\n{WHERE}",
    )
