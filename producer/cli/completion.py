"""The command ``producer completion``: scripts by shtab that complete the command line in bash, zsh and fish.

A script holds every word of the parsers, because a call of Python for each completion would be slow.
"""

from __future__ import annotations

import argparse

from .parsing import set_examples, subparsers_of

SHELLS = ("bash", "zsh", "fish")
# Placeholders of options and arguments that take a path.
_PATHS = {"FILE", "DIR", "DIR2", "PATH", "GLOB"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer completion``."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    set_examples(
        parser,
        "producer completion bash > ~/.local/share/bash-completion/completions/producer",
        "producer completion zsh > ~/.zfunc/_producer      # a folder of $fpath",
        "producer completion fish > ~/.config/fish/completions/producer.fish",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``producer completion``, and return the exit code."""
    import shtab

    from .commands import COMMANDS, build_parser  # they import this module

    parser = build_parser(COMMANDS)
    _complete_files(parser, shtab.FILE)
    print(shtab.complete(parser, args.shell), flush=True)
    return 0


def _complete_files(parser: argparse.ArgumentParser, files: object) -> None:
    """Complete file names where an option or an argument takes a path."""
    for action in parser._actions:
        if action.metavar in _PATHS:
            action.complete = files  # type: ignore[attr-defined]  # shtab reads it
    for each in subparsers_of(parser).values():
        _complete_files(each, files)
