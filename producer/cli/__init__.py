"""The command line, ``producer COMMAND …``: :mod:`.commands` lists the commands.

argparse, and not a library above it: every command's help works in the smallest installation, and starts as quickly as
Python does.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from .commands import Command

#: The exit code of a command that SIGINT has ended.
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (default: the process's arguments) names; returns the exit code.

    An interrupt ends it with one line and 130, SIGTERM with 143, SIGHUP with 129, whatever it did at that moment. A
    command that runs until it is told to end ends in order, with an exit code of its own.
    """
    try:
        return _main_with_signals(argv)
    except KeyboardInterrupt:  # before that could tell it, or after
        print("producer: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _main_with_signals(argv: Sequence[str] | None) -> int:
    from .interrupts import Interrupts  # as long as nothing is imported nothing is traced

    if sys.stderr is None:  # print would take the standard output in its place
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    arguments = _asked(arguments_of(sys.argv[1:]) if argv is None else list(argv))
    name: str | None = None
    interrupts = Interrupts()
    with interrupts.raised():
        try:
            from ..runtime.signals import ignore_until_exit  # here an interrupt is told, not traced
            from .commands import COMMANDS
            from .exit_codes import ExitCode

            name = next((argument for argument in arguments if argument in COMMANDS), None)
            code = _main(arguments, name, ends_process=argv is None)
            if argv is None and code in (ExitCode.OK, ExitCode.FAILED):
                ignore_until_exit()
        except (KeyboardInterrupt, RuntimeError) as error:
            # Within the making of a class CPython 3.11 tells one as an error that it caused.
            if not any(isinstance(each, KeyboardInterrupt) for each in (error, error.__cause__)):
                raise
            code = interrupts.tell(f"producer {name}" if name else "producer")
        return interrupts.exit_code if code == _INTERRUPTED else code


def arguments_of(words: Sequence[str]) -> list[str]:
    """The process's arguments; in a locale whose letters are fewer than UTF-8's they are read again as that."""
    return [word if word.isascii() else _utf_8(word) for word in words]


def _asked(arguments: list[str]) -> list[str]:
    """``help`` and ``help COMMAND`` as the flag that they mean."""
    return [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments


def _utf_8(word: str) -> str:
    try:
        return word.encode(sys.getfilesystemencoding(), "surrogateescape").decode()
    except UnicodeError:  # it is none: shown, or opened, as the bytes that it is
        return word


def _main(arguments: Sequence[str], name: str | None, *, ends_process: bool) -> int:
    import argparse

    from .commands import COMMANDS, build_parser
    from .exit_codes import ExitCode

    _write_whole()
    _spare_letters()
    if not arguments:  # who types the name alone wants to know what there is
        build_parser({}).print_help(sys.stderr)
        return ExitCode.USAGE
    given = argparse.Namespace(ends_process=ends_process)
    try:
        args = build_parser({name: COMMANDS[name]} if name else {}).parse_args(arguments, given)
    except SystemExit:  # a help, say, which is not written yet
        code = _unwritten(name or arguments[0])
        if code is None:
            raise
        return code
    except OSError as error:
        return _tell_unwritten(name or arguments[0], error)
    return _run(str(name), COMMANDS[str(name)], args)


def _run(name: str, command: Command, args: argparse.Namespace) -> int:
    import logging  # it takes as long as all the rest of the help

    from ..model.errors import ConfigError, InvalidArgumentError, ProducerError
    from .exit_codes import ExitCode
    from .log_lines import FORM, LogLines
    from .output import tell_error
    from .profiles import UsageError

    handler = logging.StreamHandler()
    handler.setFormatter(LogLines(FORM))
    logging.basicConfig(level=args.log_level, handlers=[handler])
    try:
        _check_output()
        code = command.run(args)
        sys.stdout.flush()
        return code
    except ImportError as error:
        from ..text.extras import how_to_install

        hint = f". Try: {how_to_install(command.extra)}" if command.extra and "pip install" not in str(error) else ""
        tell_error(name, f"{error}{hint}")
        return ExitCode.USAGE
    except (ConfigError, InvalidArgumentError, UsageError) as error:
        tell_error(name, error)
        return ExitCode.USAGE
    except ProducerError as error:
        tell_error(name, error)
        return ExitCode.FAILED
    except OSError as error:
        logging.getLogger(__name__).debug("where this came from", exc_info=True)
        return _tell_unwritten(name, error)


def _unwritten(who: str) -> int | None:
    """The exit code of what could not write what it had to; None where it could."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return _tell_unwritten(who, error)
    return None


def _tell_unwritten(who: str, error: OSError) -> int:
    from .exit_codes import ExitCode
    from .output import tell_error

    _discard_output()
    if isinstance(error, BrokenPipeError):  # whoever read the output has seen enough
        return ExitCode.BROKEN_PIPE
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None
    tell_error(who, f"{'the output cannot be written: ' if full else ''}{_told(error)}")
    return ExitCode.FAILED


def _told(error: OSError) -> str:
    what = error.strerror or str(error)
    return what if error.filename is None else f"{error.filename}: {what}"


def _check_output() -> None:
    """:raises UsageError: there is no output."""
    from .profiles import UsageError

    if sys.stdout is None:
        raise UsageError("the standard output is closed: give one, such as /dev/null")


def _write_whole() -> None:
    """Without a buffer (``python -u``, ``PYTHONUNBUFFERED``) Python takes what was written in part for written."""
    import io

    out = sys.stdout
    if isinstance(getattr(out, "buffer", None), io.RawIOBase):
        sys.stdout = open(  # noqa: SIM115  # as long as the process
            out.fileno(), "w", buffering=1, encoding=out.encoding, errors=out.errors, closefd=False
        )


def _spare_letters() -> None:
    """What the locale has no letters for is shown with backslashes, in a help, too."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """What is still to be written goes nowhere: the exit of the interpreter would try it again."""
    import contextlib
    import io

    with contextlib.suppress(io.UnsupportedOperation):  # a stream without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
