"""The command line: ``producer ship``, ``producer agent``, ``producer serve`` and ``producer channel``.

Each command's module is imported when it is used, so that ``serve`` needs no Spark and ``ship`` no server.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import ProducerError
from .interrupts import INTERRUPTED, Interrupts

_COMMANDS = {
    "ship": ("producer.cli.ship", "ship", "ship log files to a LogHub, by a Spark job or processes of this machine"),
    "agent": ("producer.cli.agent", "agent", "run an agent: sources, channels and sinks of a file, as Flume does"),
    "channel": ("producer.cli.channel", "encryption", "look into, mend or empty the directory of a file channel"),
    "serve": ("producer.cli.serve", "server", "run an embedded LogHub for development and tests"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (default: the process's arguments) names; returns the exit code.

    An interrupt ends it with one line and 130, SIGTERM with 143, whatever it did at that moment.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((argument for argument in arguments if argument in _COMMANDS), None)
    with Interrupts() as interrupts:
        try:
            code = _main(arguments, name)
        except KeyboardInterrupt:
            code = interrupts.tell(f"producer {name}" if name else "producer")
        return interrupts.exit_code if code == INTERRUPTED else code


def _main(arguments: Sequence[str], name: str | None) -> int:
    parser = argparse.ArgumentParser(prog="producer", description="Logs to LogHub (Aliyun Log Service).")
    parser.add_argument("--version", action=_Version, help="show program's version number and exit")
    _add_log_level(parser, "WARNING")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    module = None
    for command, (module_name, extra, help_text) in _COMMANDS.items():
        subparser = commands.add_parser(command, help=help_text, description=help_text)
        if command == name:
            try:
                module = importlib.import_module(module_name)
            except ImportError as error:
                print(f"producer {name}: {error}. Try: pip install 'loghub-producer[{extra}]'", file=sys.stderr)
                return 2
            _add_log_level(subparser, argparse.SUPPRESS)
            module.add_arguments(subparser)
    args = parser.parse_args(arguments)
    return _run(str(name), module, args)


class _Version(argparse.Action):
    """Looks the version up when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .. import __version__  # noqa: PLC0415  (it takes longer than all the rest)
        from ..wire.speed import TWIN  # noqa: PLC0415

        print(f"producer {__version__} ({TWIN} encoders)")
        parser.exit()


def _add_log_level(parser: argparse.ArgumentParser, default: str) -> None:
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    parser.add_argument(
        "--log-level", type=str.upper, choices=levels, default=default, help="of this process's own log (WARNING)"
    )


def _run(name: str, module: Any, args: argparse.Namespace) -> int:
    logging.basicConfig(level=args.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return int(module.run(args))
    except ProducerError as error:
        print(f"producer {name}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
