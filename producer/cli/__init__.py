"""The command line, ``producer COMMAND …``. :mod:`.commands` lists the commands.

It uses argparse alone, so that every command's help works in the smallest installation and starts quickly.
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

#: The exit code of a command that SIGINT ended.
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` names (default: the process's arguments), and return its exit code.

    At any moment, SIGINT ends the command with one line and 130, SIGTERM with 143, SIGHUP with 129. A command that
    runs until it is stopped shuts down gracefully, with an exit code of its own.
    """
    try:
        return _main_with_signals(argv)
    except KeyboardInterrupt:  # before or after the block that reports it
        print("producer: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _main_with_signals(argv: Sequence[str] | None) -> int:
    from .interrupts import Interrupts  # imported first: an interrupt then prints no traceback

    if sys.stderr is None:  # print would write to the standard output instead
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    arguments = _with_help_flag(arguments_of(sys.argv[1:]) if argv is None else list(argv))
    name: str | None = None
    interrupts = Interrupts()
    with interrupts.raised():
        try:
            from ..runtime.signals import ignore_until_exit  # an interrupt of this import prints no traceback
            from .commands import COMMANDS
            from .exit_codes import ExitCode

            name = next((argument for argument in arguments if argument in COMMANDS), None)
            code = _main(arguments, name, ends_process=argv is None)
            if argv is None and code in (ExitCode.OK, ExitCode.FAILED):
                ignore_until_exit()
        except (KeyboardInterrupt, RuntimeError) as error:
            # While a class is created, CPython 3.11 raises an interrupt as the cause of a RuntimeError.
            if not any(isinstance(each, KeyboardInterrupt) for each in (error, error.__cause__)):
                raise
            code = interrupts.report(f"producer {name}" if name else "producer")
        return interrupts.exit_code if code == _INTERRUPTED else code


def arguments_of(words: Sequence[str]) -> list[str]:
    """Return the process's arguments, decoded as UTF-8 also in a locale with fewer characters."""
    return [word if word.isascii() else _utf_8(word) for word in words]


def _with_help_flag(arguments: list[str]) -> list[str]:
    """Return the arguments with ``help`` and ``help COMMAND`` replaced by ``--help``."""
    return [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments


def _utf_8(word: str) -> str:
    try:
        return word.encode(sys.getfilesystemencoding(), "surrogateescape").decode()
    except UnicodeError:  # not UTF-8: shown, and opened, as its bytes
        return word


def _main(arguments: Sequence[str], name: str | None, *, ends_process: bool) -> int:
    import argparse

    from .commands import COMMANDS, build_parser
    from .exit_codes import ExitCode

    _buffer_output()
    _escape_unencodable()
    if not arguments:
        build_parser({}).print_help(sys.stderr)
        return ExitCode.USAGE
    given = argparse.Namespace(ends_process=ends_process)
    try:
        args = build_parser({name: COMMANDS[name]} if name else {}).parse_args(arguments, given)
    except SystemExit:  # --help has printed, but its output is not flushed yet
        code = _flush_output(name or arguments[0])
        if code is None:
            raise
        return code
    except OSError as error:
        return _report_os_error(name or arguments[0], error)
    return _run(str(name), COMMANDS[str(name)], args)


def _run(name: str, command: Command, args: argparse.Namespace) -> int:
    import logging  # imports as slowly as all the rest of the help

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
        logging.getLogger(__name__).debug("traceback of the error", exc_info=True)
        return _report_os_error(name, error)


def _flush_output(command: str) -> int | None:
    """Flush the standard output. Return the exit code if that fails, None if it succeeds."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return _report_os_error(command, error)
    return None


def _report_os_error(command: str, error: OSError) -> int:
    from .exit_codes import ExitCode
    from .output import tell_error

    _discard_output()
    if isinstance(error, BrokenPipeError):  # the reader of the pipe has closed it
        return ExitCode.BROKEN_PIPE
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None
    tell_error(command, f"{'cannot write the output: ' if full else ''}{_description(error)}")
    return ExitCode.FAILED


def _description(error: OSError) -> str:
    cause = error.strerror or str(error)
    return cause if error.filename is None else f"{error.filename}: {cause}"


def _check_output() -> None:
    """Check that there is a standard output.

    :raises UsageError: the standard output is closed.
    """
    from .profiles import UsageError

    if sys.stdout is None:
        raise UsageError("the standard output is closed; redirect it, for example to /dev/null")


def _buffer_output() -> None:
    """Buffer the standard output: without a buffer (``python -u``) Python ignores a partial write."""
    import io

    out = sys.stdout
    if isinstance(getattr(out, "buffer", None), io.RawIOBase):
        sys.stdout = open(  # noqa: SIM115  # open until the process ends
            out.fileno(), "w", buffering=1, encoding=out.encoding, errors=out.errors, closefd=False
        )


def _escape_unencodable() -> None:
    """Print characters that the locale lacks with backslashes."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Redirect the standard output to /dev/null: the interpreter would flush it again when it exits."""
    import contextlib
    import io

    with contextlib.suppress(io.UnsupportedOperation):  # a stream without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
