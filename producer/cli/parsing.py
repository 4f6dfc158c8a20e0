"""What all commands have of their parser: examples in the help, and the nearest name for one that does not exist.

Nothing here may take long to import: the help and the completion of every command wait for it.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..text.printable import described

Actions = argparse._SubParsersAction  # its only name


#: What begins with a dash and is a value: a number, or a time ago, also one whose unit is none.
_NEGATIVE = re.compile(r"-\d+(\.\d*)?[a-zA-Z]*$|-\.\d+$")

#: The longest time that a command takes, seconds.
_YEAR = 365 * 86_400
#: Of an integer, at most: any number of them fits into 64 bits.
_DIGITS = 18

#: Flags that people know from other programs, or expect, and what they are called where there is such a flag.
_ELSEWHERE = {
    "--address": "--endpoint",
    "--format": "--parser",
    "--host": "--endpoint",
    "--ignore": "--exclude",
    "--jobs": "--workers",
    "--json": "--output",
    "--processes": "--workers",
    "--regex": "--pattern",
    "--regexp": "--pattern",
    "--separator": "--delimiter",
    "--tail": "--follow",
    "--url": "--endpoint",
}


class Parser(argparse.ArgumentParser):
    """An argument parser that says which option or word was meant, and takes ``-1h`` for a value."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        # A part of a flag is none: `send --time 5` would be --timeout.
        keywords["allow_abbrev"] = False
        super().__init__(*args, **keywords)
        self._negative_number_matcher = _NEGATIVE

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As the base class does, after unknown options were looked for: they matter more than missing ones."""
        self._check_options([] if args is None else list(args))
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As the base class does; what is left over is told by the command that it was given to."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            parser = self._of(found)
            parser.error(f"{rest[0]!r} is one argument too many{parser._as_a_file(rest[0])}")
        return found

    def _of(self, found: argparse.Namespace) -> Parser:
        """The parser of the command, or action, that was asked for."""
        parser = self
        for word in ("command", "action"):
            below = subparsers_of(parser).get(str(getattr(found, word, None)))
            parser = below if isinstance(below, Parser) else parser
        return parser

    def _check_options(self, arguments: Sequence[str]) -> None:
        words = subparsers_of(self)
        for argument in arguments:
            if argument == "--" or argument in words:  # what follows is not this parser's
                return
            name = argument.partition("=")[0]
            if name.startswith("--") and " " not in argument and not self._known(name):
                self.error(f"unknown flag {name}{self._near(name)}")

    def _known(self, name: str) -> bool:
        return name in self._option_string_actions

    def _near(self, name: str) -> str:
        if (meant := _ELSEWHERE.get(name, "")) in self._option_string_actions:
            return f": did you mean {meant}?"
        options = [option for option in self._option_string_actions if option.startswith("--")]
        return did_you_mean(name, options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        what = "no such command" if isinstance(action, argparse._SubParsersAction) else "no such choice"
        known = [str(choice) for choice in action.choices]
        hint = did_you_mean(str(value), known) or self._as_a_file(str(value)) or f"; choose from {', '.join(known)}"
        if value in ("run", "start") and "--config" in self._option_string_actions:
            hint = f"; without one it runs: {self.prog} --config FILE"
        raise argparse.ArgumentError(action if action.option_strings else None, f"{what} {value!r}{hint}")

    def _as_a_file(self, value: str) -> str:
        """Of an agent's file that was given by its place: how it is given."""
        flag = {".toml": "--config", ".properties": "--flume"}.get(value[value.rfind(".") :])
        known = flag in self._option_string_actions
        return f"; a file is given by {flag} {value}" if known else ""

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a help; the base class ignores a standard output that takes nothing.

        :raises OSError: the standard output cannot be written.
        """
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, in one line, and where the help is; the exit code is 2."""
        missing = message.removeprefix("the following arguments are required: ")
        choices = next((action.choices for action in self._actions if missing in (action.dest, action.metavar)), None)
        if missing != message and " " not in missing and choices:
            message += f", one of {', '.join(choices)}"
        end = "" if message.endswith("?") else ";"
        self.exit(2, f"{self.prog}: {message}{end} see {self.prog} --help\n")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """``: did you mean X?``, or nothing where no name is near."""
    from difflib import get_close_matches  # only what is wrong needs it

    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f": did you mean {near[0]}?" if near else ""


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of its commands or actions, by their names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def add_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    """A parser for one action of a command.

    :param actions: of ``add_subparsers``.
    """
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return action


def set_examples(parser: argparse.ArgumentParser, *examples: str, more: str = "") -> None:
    """Have the help end with examples.

    :param more: a paragraph before them.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = "\n".join(f"  {example}" for example in examples)
    parser.epilog = f"{more}\n\nexamples:\n{lines}" if more else f"examples:\n{lines}"


def seconds(text: str) -> float:
    """A number of seconds, from 0 to a year.

    :raises ArgumentTypeError: it is none.
    """
    return _seconds(text, 0.0, f"from 0 to {_YEAR}")


def positive_seconds(text: str) -> float:
    """A number of seconds above 0, a year at most.

    :raises ArgumentTypeError: it is none.
    """
    return _seconds(text, math.nextafter(0.0, 1.0), f"above 0, at most {_YEAR}")


def _seconds(text: str, least: float, bounds: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= _YEAR:
        raise argparse.ArgumentTypeError(f"must be a number of seconds {bounds} (a year), got {described(text)}")
    return number


def positive_integer(text: str) -> int:
    """An integer from 1.

    :raises ArgumentTypeError: it is none.
    """
    return _integer(text, 1)


def whole_number(text: str) -> int:
    """An integer from 0.

    :raises ArgumentTypeError: it is none.
    """
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS or int(text) < least:
        rule = f"must be an integer, at least {least}, of at most {_DIGITS} digits"
        raise argparse.ArgumentTypeError(f"{rule}, got {described(text)}")
    return int(text)
