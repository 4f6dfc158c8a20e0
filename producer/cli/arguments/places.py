"""The arguments of ``producer projects``, ``logstores``, ``create``, ``check`` and ``doctor``."""

from __future__ import annotations

import argparse

from ..parsing import positive_integer, positive_seconds, set_examples
from .target import WHERE, add_output, add_target, add_timeout


def projects(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer projects``."""
    add_output(parser)
    add_timeout(parser)
    add_target(parser, project=False, logstore=False)
    set_examples(parser, "producer projects --profile prod", "producer projects --output csv", more=WHERE)


def logstores(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer logstores``."""
    parser.add_argument("-v", "--details", action="store_true", help="also show shards and how long logs are kept")
    add_output(parser)
    add_timeout(parser)
    add_target(parser, logstore=False)
    set_examples(parser, "producer logstores -p my-project", "producer logstores --details --profile prod", more=WHERE)


def create(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer create``."""
    parser.add_argument("what", choices=("project", "logstore"), metavar="project or logstore")
    parser.add_argument("name", nargs="?", metavar="NAME", help="default: --project or --logstore")
    parser.add_argument("--shards", type=positive_integer, default=2, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--ttl", type=positive_integer, default=30, metavar="DAYS", help="how long logs are kept; default: %(default)s"
    )
    parser.add_argument(
        "--index", action="store_true", help="index every word; the service needs this for `search` and `count`"
    )
    parser.add_argument("--description", default="", metavar="TEXT", help="the project's description")
    parser.add_argument("--if-not-exists", action="store_true", help="no error if it exists already")
    add_timeout(parser)
    add_target(parser)
    set_examples(
        parser,
        "producer create project my-project --profile local",
        "producer create logstore app -p my-project --shards 4 --ttl 7 --index",
        more=WHERE,
    )


def check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer check``."""
    parser.add_argument(
        "--timeout", type=positive_seconds, default=10.0, metavar="SECONDS", help="default: %(default)s"
    )
    add_target(parser)
    set_examples(parser, "producer check -p my-project -l app --profile prod", more=WHERE)


def doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer doctor``."""
    parser.add_argument(
        "--write-only", action="store_true", help="skip listing and reading, for a key that may only write"
    )
    parser.add_argument("--no-write", action="store_true", help="write no log")
    parser.add_argument(
        "--timeout", type=positive_seconds, default=10.0, metavar="SECONDS", help="of each step; default: %(default)s"
    )
    add_target(parser)
    set_examples(
        parser,
        "producer doctor -p my-project -l app --profile prod",
        "producer doctor -p my-project -l app --write-only",
        more="No secret is printed. The log that it writes has the topic producer-doctor.\n" + WHERE,
    )
