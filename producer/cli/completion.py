"""The command ``producer completion``: scripts that complete the command line in bash, zsh and fish.

A script holds every word of the parsers, because a call of Python for each completion would be slow. Where an option or
an argument takes any value, the shell completes file names.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from .parsing import set_examples, subparsers_of

SHELLS = ("bash", "zsh", "fish")

#: The words after each sequence of commands, such as ``channel inspect``.
Words = dict[str, list[str]]


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
    from .commands import COMMANDS, build_parser  # they import this module

    words = dict(_words(build_parser(COMMANDS), ""))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](words), end="", flush=True)
    return 0


def _words(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, list[str]]]:
    below = subparsers_of(parser)
    options = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    values = [
        str(choice)
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
        for choice in action.choices or ()
    ]
    yield path, [*below, *values, *options]
    for name, each in below.items():
        yield from _words(each, f"{path} {name}".strip())


#: Find the longest sequence of commands on the line, joined by colons, and the words that may follow it. The variables
#: are not `path` and `words`, which zsh reserves.
_FIND = """\
  local at="" word known=""
  for word in {line}; do
    case " {paths} " in
      *" ${{at:+$at:}}$word "*) at="${{at:+$at:}}$word" ;;
    esac
  done
  case "$at" in
{cases}
  esac
"""


def _find(words: Words, line: str) -> str:
    paths = " ".join(_joined(path) for path in words if path)
    cases = "\n".join(f'    "{_joined(path)}") known="{" ".join(after)}" ;;' for path, after in words.items())
    return _FIND.format(line=line, paths=paths, cases=cases)


def _joined(path: str) -> str:
    return path.replace(" ", ":")


def _bash(words: Words) -> str:
    find = _find(words, '"${COMP_WORDS[@]:1:COMP_CWORD-1}"')
    return (
        f"# bash completion of producer\n_producer() {{\n{find}"
        '  COMPREPLY=($(compgen -W "$known" -- "${COMP_WORDS[COMP_CWORD]}"))\n}\n'
        "complete -o default -F _producer producer\n"
    )


def _zsh(words: Words) -> str:
    find = _find(words, '"${(@)words[2,CURRENT-1]}"')
    return (
        f"#compdef producer\n# zsh completion of producer\n_producer() {{\n{find}"
        "  compadd -- ${=known}\n  _files\n}\n"
        'if [ "$funcstack[1]" = "_producer" ]; then _producer "$@"; else compdef _producer producer; fi\n'
    )


def _fish(words: Words) -> str:
    lines = ["# fish completion of producer", "function __producer_at", "  set -l path"]
    lines += ["  for word in (commandline -opc)[2..]"]
    known = " ".join(f"'{path}'" for path in words if path)
    # `--` and the quotes: a word may look like an option, and the path may be empty.
    lines += [f'    contains -- (string join -- " " $path $word) {known}; and set path $path $word', "  end"]
    lines += ['  test "$path" = "$argv"', "end"]
    for path, after in words.items():
        for word in after:
            asked = f"complete -c producer -n '__producer_at {path}'"
            lines.append(f"{asked} -l {word[2:]}" if word.startswith("--") else f"{asked} -a {word}")
    return "\n".join(lines) + "\n"
