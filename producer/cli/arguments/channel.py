"""The arguments of ``producer channel``."""

from __future__ import annotations

import argparse
from typing import Any

from ..parsing import add_action, positive_integer, seconds, set_examples
from .target import WHERE, add_output, add_output_of_report, add_target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer channel``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    inspect = _add_channel_action(
        actions, "inspect", "show what is in it: events, age, segments, damage; change nothing"
    )
    verify = _add_channel_action(
        actions, "verify", "check every record; exit code 1 if something is damaged; change nothing"
    )
    for report in (inspect, verify):
        add_output_of_report(report)
    peek = _add_channel_action(actions, "peek", "print the first logs in it; change nothing")
    peek.add_argument("-n", "--limit", type=positive_integer, default=10, metavar="N", help="default: %(default)s")
    export = _add_channel_action(actions, "export", "print all logs in it; change nothing")
    export.add_argument("-n", "--limit", type=positive_integer, metavar="N", help="at most N logs; default: all")
    for reader in (peek, export):
        add_output(reader)
    mend = _add_channel_action(actions, "repair", "repair damaged files; the originals are kept in quarantine/")
    mend.add_argument(
        "--give-up-missing", action="store_true", help="go on without missing segments; their events are lost"
    )
    drain = _add_channel_action(actions, "drain", "deliver what is in it")
    drain.add_argument(
        "--all", action="store_true", help="DIR is the base of ProcessFileChannel: drain each directory below it"
    )
    add_target(drain, project=False, logstore=False)
    drain.add_argument(
        "--dead-letter",
        metavar="DIR2",
        help="where to put events that the server refuses permanently; default: DIR.dead-letter, or the base's",
    )
    drain.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="stop after this long, and keep the rest; default: no limit"
    )
    set_examples(inspect, "producer channel inspect /var/lib/app/channel")
    set_examples(verify, "producer channel verify --output json /var/lib/app/channel")
    set_examples(peek, "producer channel peek /var/lib/app/channel", "producer channel peek DIR -n 100 --output jsonl")
    set_examples(export, "producer channel export /var/lib/app/channel > left.jsonl")
    set_examples(mend, "producer channel repair /var/lib/app/channel")
    set_examples(
        drain,
        "producer channel drain /var/lib/app/channel --endpoint https://cn-hangzhou.log.aliyuncs.com",
        "producer channel drain /var/lib/app/channel --profile prod --timeout 60",
        "producer channel drain --all /var/lib/app/channels --profile prod",
        more=WHERE,
    )
    set_examples(
        parser,
        "producer channel inspect /var/lib/app/channel",
        "producer channel drain /var/lib/app/channel --profile prod",
        more="producer channel ACTION --help says more.",
    )


def _add_channel_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    action = add_action(actions, name, text)
    action.add_argument("directory", metavar="DIR")
    action.add_argument(
        "--data-directory",
        action="append",
        default=[],
        metavar="DIR",
        help="a data directory of the channel; may be repeated",
    )
    action.add_argument("--key-file", metavar="FILE", help="keys of encrypted segments, as FileKeys reads them")
    return action
