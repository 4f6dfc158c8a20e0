"""The commands, each with its purpose and the modules of its arguments and its work.

Arguments and work are in separate modules where the work imports slowly or needs an extra. The help needs neither.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .parsing import Parser, set_examples

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    :ivar help: its purpose, in a few words.
    :ivar arguments: the module of its arguments, "module" or "module:function" below this package. The default
        function is ``add_arguments``.
    :ivar work: the module of its work, in the same form, imported when the command runs. The default function is
        ``run``.
    :ivar extra: the package's extra that its work needs; empty for none.
    """

    help: str
    arguments: str
    work: str
    extra: str = ""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command, and return the exit code.

        :raises ImportError: the extra is not installed.
        """
        return int(_named(self.work, "run")(args))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments to its parser."""
        _named(self.arguments, "add_arguments")(parser)


def _named(place: str, default: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name or default)


COMMANDS: dict[str, Command] = {
    "ship": Command("ship log files to LogHub, with or without Spark", "arguments.ship", "ship", "ship"),
    "agent": Command("run an agent: sources, channels and sinks, as in Flume", "arguments.agent", "agent"),
    "channel": Command("inspect, repair or drain the directory of a file channel", "arguments.channel", "channel"),
    "serve": Command("run an embedded LogHub for development and tests", "serve", "serve", "server"),
    "check": Command(
        "check that logs would arrive, and report what is wrong", "arguments.places:check", "places:check"
    ),
    "doctor": Command(
        "examine each step from this machine to a logstore, with a log written and read back",
        "arguments.places:doctor",
        "doctor",
    ),
    "send": Command("send lines, JSON lines or CSV, and say how many were delivered", "arguments.send", "send"),
    "search": Command("find logs of a time range", "arguments.search:search", "search:search"),
    "count": Command("count the logs that match a query", "arguments.search:count", "search:count"),
    "sql": Command("run SQL over logs", "arguments.search:sql", "search:sql"),
    "context": Command(
        "show what the sender of a log sent before and after it", "arguments.search:context", "search:context"
    ),
    "tail": Command("show the newest logs; with -f follow new ones", "arguments.tail:tail", "tail:tail"),
    "pull": Command("print all logs of shards, in the order of arrival", "arguments.tail:pull", "tail:pull"),
    "projects": Command("list the projects", "arguments.places:projects", "places:projects"),
    "logstores": Command("list the logstores of a project", "arguments.places:logstores", "places:logstores"),
    "create": Command("create a project or a logstore", "arguments.places:create", "places:create"),
    "completion": Command("print a completion script for bash, zsh or fish", "completion", "completion", "completion"),
}

_EXAMPLES = (
    "producer serve",
    "echo hello | producer send --profile local -p demo -l app",
    "producer search error --from -1h --profile local -p demo -l app",
    "producer ship /var/log/nginx --profile prod -p my-project -l nginx",
)


def build_parser(wanted: Mapping[str, Command]) -> Parser:
    """Build the parser of the command line.

    :param wanted: the commands with arguments; the others have only their help.
    """
    parser = Parser(prog="producer", description="Send logs to LogHub (Aliyun Log Service), and read them.")
    parser.add_argument("-V", "--version", action=_Version, help="show program's version number and exit")
    _add_log_level(parser, "WARNING")
    actions = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name, command in COMMANDS.items():
        subparser = actions.add_parser(name, help=command.help, description=_sentence(command.help))
        if name in wanted:
            _add_log_level(subparser, argparse.SUPPRESS)
            command.add_arguments(subparser)
    set_examples(parser, *_EXAMPLES, more="producer COMMAND --help says more, with examples.")
    return parser


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class _Version(argparse.Action):
    """The action of ``--version``, which imports the version only when it is needed."""

    def __init__(self, option_strings: Any, dest: str, help: str | None = None) -> None:  # noqa: A002  # argparse's name
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .. import __version__  # imports more slowly than all the rest
        from ..wire.speed import TWIN

        parser._print_message(f"producer {__version__} ({TWIN} encoders)\n", sys.stdout)
        parser.exit()


def _add_log_level(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--log-level",
        type=str.upper,
        choices=_LEVELS,
        default=default,
        help="level of this command's own log (WARNING)",
    )
