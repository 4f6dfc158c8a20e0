"""The parser of all commands: examples in the help, and a suggestion for an unknown name.

This module must import quickly: every command's help and completion wait for it.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..text.printable import described

Actions = argparse._SubParsersAction  # argparse exports no public name


#: A value that begins with a dash: a number, or a time ago, also with an unknown unit.
_NEGATIVE = re.compile(r"-\d+(\.\d*)?[a-zA-Z]*$|-\.\d+$")

#: The limit of an argument in seconds.
_YEAR = 365 * 86_400
#: The limit of an integer's digits: every such number fits into 64 bits.
_DIGITS = 18

#: Flags of other programs, and their names here.
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
    """An argument parser that suggests the option or word that was meant, and reads ``-1h`` as a value."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        # No abbreviated flags: `send --time 5` would mean --timeout.
        keywords["allow_abbrev"] = False
        super().__init__(*args, **keywords)
        self._negative_number_matcher = _NEGATIVE

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and report unknown options before missing ones."""
        self._check_options([] if args is None else list(args))
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and report superfluous arguments in the name of their command."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            parser = self._of(found)
            parser.error(f"superfluous argument {rest[0]!r}{parser._file_hint(rest[0])}")
        return found

    def _of(self, found: argparse.Namespace) -> Parser:
        """Return the parser of the given command or action."""
        parser = self
        for word in ("command", "action"):
            below = subparsers_of(parser).get(str(getattr(found, word, None)))
            parser = below if isinstance(below, Parser) else parser
        return parser

    def _check_options(self, arguments: Sequence[str]) -> None:
        words = subparsers_of(self)
        for argument in arguments:
            if argument == "--" or argument in words:  # the rest belongs to another parser
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
        fault = "no such command" if isinstance(action, argparse._SubParsersAction) else "no such choice"
        known = [str(choice) for choice in action.choices]
        hint = did_you_mean(str(value), known) or self._file_hint(str(value)) or f"; choose from {', '.join(known)}"
        if value in ("run", "start") and "--config" in self._option_string_actions:
            hint = f"; to run it, give none: {self.prog} --config FILE"
        raise argparse.ArgumentError(action if action.option_strings else None, f"{fault} {value!r}{hint}")

    def _file_hint(self, value: str) -> str:
        """Return a hint if a configuration file was given without its flag, else an empty string."""
        flag = {".toml": "--config", ".properties": "--flume"}.get(value[value.rfind(".") :])
        known = flag in self._option_string_actions
        return f"; give a file as {flag} {value}" if known else ""

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a help. The base class would ignore a standard output that cannot be written.

        :raises OSError: the standard output cannot be written.
        """
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Print the error and where the help is, in one line, and exit with 2."""
        missing = message.removeprefix("the following arguments are required: ")
        choices = next((action.choices for action in self._actions if missing in (action.dest, action.metavar)), None)
        if missing != message and " " not in missing and choices:
            message += f", one of {', '.join(choices)}"
        end = "" if message.endswith("?") else ";"
        self.exit(2, f"{self.prog}: {message}{end} see {self.prog} --help\n")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return ``: did you mean X?``, or an empty string if no known name is close."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f": did you mean {near[0]}?" if near else ""


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands or actions by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def add_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Add an action to a command, and return its parser.

    :param actions: the result of ``add_subparsers``.
    """
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return action


def set_examples(parser: argparse.ArgumentParser, *examples: str, more: str = "") -> None:
    """Set the examples at the end of the help.

    :param more: a paragraph before them; empty for none.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = "\n".join(f"  {example}" for example in examples)
    parser.epilog = f"{more}\n\nexamples:\n{lines}" if more else f"examples:\n{lines}"


def seconds(text: str) -> float:
    """Parse a number of seconds, from 0 to a year.

    :raises ArgumentTypeError: the text is not such a number.
    """
    return _seconds(text, 0.0, f"from 0 to {_YEAR}")


def positive_seconds(text: str) -> float:
    """Parse a number of seconds above 0, a year at most.

    :raises ArgumentTypeError: the text is not such a number.
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
    """Parse an integer, at least 1.

    :raises ArgumentTypeError: the text is not such an integer.
    """
    return _integer(text, 1)


def whole_number(text: str) -> int:
    """Parse an integer, at least 0.

    :raises ArgumentTypeError: the text is not such an integer.
    """
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS or int(text) < least:
        rule = f"must be an integer, at least {least}, of at most {_DIGITS} digits"
        raise argparse.ArgumentTypeError(f"{rule}, got {described(text)}")
    return int(text)
