"""The arguments of ``producer ship``.

The defaults are copies of those of :mod:`producer.ship`, which imports slowly. A test compares them.
"""

from __future__ import annotations

import argparse

from ..parsing import positive_integer, positive_seconds, set_examples
from .target import WHERE, add_target

ENGINES = ("spark", "local")
PARSER_NAMES = ("auto", "text", "json", "regex", "apache", "syslog", "logfmt", "delimited")
LOCAL_MASTER = "local[*,4]"
ACK_TIMEOUT, INTERVAL, SETTLE = 600.0, 1.0, 10.0
MAX_LINE_BYTES, PARTITION_BYTES = 1_500_000, 64 << 20

_SHORTEST_LINE = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer ship``."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a file, a directory (all of it), a glob, an address such as s3://bucket/logs or https://host/a.log.gz, "
        "or - for standard input",
    )
    target = add_target(parser)
    target.add_argument("--topic", default="")
    target.add_argument("--source", help="default: the worker's address")
    _add_reading_arguments(parser.add_argument_group("what and how to read"))
    _add_following_arguments(parser.add_argument_group("following"))
    running = parser.add_argument_group("running")
    running.add_argument(
        "--dry-run", action="store_true", help="send nothing: list the files, and show the first record of each"
    )
    running.add_argument("--engine", choices=ENGINES, help="default: spark where it is installed")
    running.add_argument(
        "--workers", type=positive_integer, metavar="N", help="processes of --engine local; default: one for each core"
    )
    running.add_argument("--master", help=f"the Spark master; default: {LOCAL_MASTER}, this machine")
    running.add_argument(
        "--producer-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the producer, such as linger_ms=200; may be repeated",
    )
    running.add_argument(
        "--ack-timeout",
        type=positive_seconds,
        default=ACK_TIMEOUT,
        metavar="SECONDS",
        help="fail when nothing was acknowledged for this long; default: %(default)s",
    )
    set_examples(
        parser,
        "producer ship /var/log/nginx --profile prod --project my-project --logstore nginx",
        "journalctl -o json | producer ship - --profile prod --project my-project --logstore journal --parser json",
        "producer ship '/var/log/*.log' --follow --checkpoint /var/lib/ship --project my-project --logstore files",
        more=f"Every line arrives at least once, or the exit code is not 0 and an error says which did not.\n\n{WHERE}",
    )


def _add_reading_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--parser", choices=PARSER_NAMES, default="auto", help="default: %(default)s")
    group.add_argument("--pattern", metavar="REGEX", help="for --parser regex; its named groups become fields")
    group.add_argument(
        "--delimiter",
        metavar="CHARACTER",
        help="for --parser delimited: what separates values; tab for a tab; default: ,",
    )
    group.add_argument(
        "--columns",
        metavar="NAME,NAME…",
        help="for --parser delimited: the names of the columns; default: the first line of each file",
    )
    group.add_argument(
        "--multiline-start",
        metavar="REGEX",
        help="pattern of a log's first line; other lines belong to the log before them",
    )
    group.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="GLOB",
        help="file names or paths to leave out; may be repeated",
    )
    group.add_argument(
        "--allow-links-to",
        action="append",
        default=[],
        metavar="DIR",
        help="follow links that lead below this directory, too; may be repeated; default: only below the paths",
    )
    group.add_argument(
        "--allow-unread",
        action="store_true",
        help="end with exit code 0 even if a named or found file cannot be read",
    )
    group.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="encoding of the files, such as utf-16 or gb18030; not with --follow; default: %(default)s",
    )
    group.add_argument(
        "--file-offset",
        action="store_true",
        help="add each record's position: the field __file_offset__, and the file's inode as a tag",
    )
    group.add_argument(
        "--line-time",
        action="store_true",
        help="take a record's time from its line, if it has one with a zone; LogHub may refuse old ones",
    )
    group.add_argument(
        "--line-time-zone",
        metavar="ZONE",
        help="--line-time, with this zone for times without one, such as Asia/Shanghai or +08:00",
    )
    group.add_argument(
        "--line-time-format",
        metavar="FORMAT",
        help="--line-time, only for times in this format: codes of strptime such as '%%d.%%m.%%Y %%H:%%M', or a name: "
        "iso8601, rfc3339, rfc2822, apache, apache_error, nginx_error, ctime, syslog, unix, unix-ms, unix-us, unix-ns",
    )
    group.add_argument(
        "--max-line-bytes",
        type=_line_size,
        default=MAX_LINE_BYTES,
        metavar="N",
        help="longer lines are shipped in pieces; default and maximum: %(default)s",
    )
    group.add_argument(
        "--partition-bytes",
        type=positive_integer,
        default=PARTITION_BYTES,
        metavar="N",
        help="bytes that one task reads; default: %(default)s",
    )


def _add_following_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--exactly-once",
        action="store_true",
        help="store each line once, also if the job is killed and run again with the same --checkpoint",
    )
    group.add_argument("--follow", action="store_true", help="keep shipping what is added to the paths")
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="directory for the offsets of shipped files; with --follow or --exactly-once",
    )
    group.add_argument(
        "--once", action="store_true", help="with --follow: ship what is new since the last time, and end"
    )
    group.add_argument(
        "--interval",
        type=positive_seconds,
        default=INTERVAL,
        metavar="SECONDS",
        help="time between two polls; default: %(default)s",
    )
    group.add_argument(
        "--settle",
        type=positive_seconds,
        default=SETTLE,
        metavar="SECONDS",
        help="a file not written to for this long is complete; default: %(default)s",
    )


def _line_size(text: str) -> int:
    number = positive_integer(text)
    if not _SHORTEST_LINE <= number <= MAX_LINE_BYTES:
        raise argparse.ArgumentTypeError(f"must be from {_SHORTEST_LINE} to {MAX_LINE_BYTES}, got {text}")
    return number
