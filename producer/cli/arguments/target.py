"""The arguments for the target and its access key; :mod:`..profiles` finds the values that they leave out."""

from __future__ import annotations

import argparse
from typing import Any

from ...model.credentials import CREDENTIALS_NAMES
from ..parsing import positive_seconds

#: The paragraph in the help of every command with a target.
WHERE = (
    "Flags that you leave out come from the environment (LOGHUB_ENDPOINT, LOGHUB_PROJECT, LOGHUB_LOGSTORE,\n"
    "LOGHUB_ACCESS_KEY_ID, LOGHUB_ACCESS_KEY_SECRET, LOGHUB_SECURITY_TOKEN, LOGHUB_CREDENTIALS, LOGHUB_REGION), then\n"
    "from the profile.\n"
    "The profile `local` is what `producer serve` listens on by default."
)

FORMATS = ("table", "json", "jsonl", "csv")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the output format of rows."""
    parser.add_argument(
        "-o", "--output", choices=FORMATS, help="default: a table on a terminal, else JSON lines (jsonl)"
    )


def add_output_of_report(parser: argparse.ArgumentParser) -> None:
    """Add the output format of a report."""
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="json is for programs (%(default)s)"
    )


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the time limit of a request."""
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long LogHub may take for each request, with all its attempts; default: %(default)s",
    )


def add_target(parser: argparse.ArgumentParser, *, project: bool = True, logstore: bool = True) -> Any:
    """Add the endpoint, project, logstore and access key.

    :param project: True if the command has a project.
    :param logstore: True if the command has a logstore.
    :returns: the group of arguments.
    """
    group = parser.add_argument_group("where to")
    group.add_argument(
        "--profile", metavar="NAME", help="a profile of the configuration file; default: $LOGHUB_PROFILE"
    )
    group.add_argument(
        "--endpoint",
        metavar="URL",
        help="such as https://cn-hangzhou.log.aliyuncs.com; several of the project are separated by commas",
    )
    if project:
        group.add_argument("-p", "--project", metavar="NAME")
    if logstore:
        group.add_argument("-l", "--logstore", metavar="NAME")
    add_keys(group)
    group.add_argument(
        "--credentials",
        metavar="SOURCE",
        help=f"source of the key, in place of one: {CREDENTIALS_NAMES}; default: $LOGHUB_CREDENTIALS",
    )
    group.add_argument("--region", metavar="NAME", help="such as cn-hangzhou; requests are then signed with version 4")
    return group


def add_keys(group: Any) -> None:
    """Add the access key."""
    group.add_argument("--access-key-id", metavar="ID", help="default: $LOGHUB_ACCESS_KEY_ID")
    group.add_argument(
        "--access-key-secret",
        metavar="SECRET",
        help="default: $LOGHUB_ACCESS_KEY_SECRET, which is safer: the process list does not show it",
    )
    group.add_argument(
        "--security-token", metavar="TOKEN", help="token of temporary credentials; default: $LOGHUB_SECURITY_TOKEN"
    )
