"""The arguments of ``producer send``."""

from __future__ import annotations

import argparse

from ..parsing import positive_seconds, set_examples
from .target import WHERE, add_target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer send``."""
    parser.add_argument("line", nargs="*", metavar="LINE", help="a log; without LINE, or with -, read standard input")
    parser.add_argument(
        "-f",
        "--format",
        choices=("lines", "json", "csv"),
        default="lines",
        help="lines: each line is the field `content`; json: an object per line; the output of search, tail and pull"
        " keeps its time, topic, source and tags; csv: the first line names the fields",
    )
    parser.add_argument("--topic", default="", metavar="TEXT", help="topic of all logs, in place of their own")
    parser.add_argument(
        "--source", metavar="TEXT", help="source of all logs, in place of their own; default: this machine's address"
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to try each log; default: %(default)s",
    )
    add_target(parser)
    set_examples(
        parser,
        "producer send 'deployed 1.4' --topic deploy -p my-project -l app",
        "journalctl -o json | producer send --format json -p my-project -l journal",
        "producer pull -p my-project -l app --output jsonl | producer send --format json -p my-project -l copy",
        "producer send --format csv -p my-project -l orders < orders.csv",
        more=f"The exit code is 0 if every log was delivered.\n\n{WHERE}",
    )
