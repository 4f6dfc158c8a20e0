"""The command ``producer ship``: its arguments, and what it does with them.

Exit codes: 0, every record was acknowledged; 1, one was not; 2, something is wrong with what was asked for, and nothing
was sent; 130, it was interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console

from ..client.stream_keys import check_text
from ..model.config import ProjectConfig
from ..model.errors import ConfigError, ProducerError
from ..ship.command import ship
from ..ship.dry_run import dry_run
from ..ship.errors import InputError
from ..ship.files.find import local_path
from ..ship.files.remote.address import has_secret, scheme_of, shown
from ..ship.follow.checkpoint import checkpoint_directory
from ..ship.follow.options import FollowOptions
from ..ship.job import ShipJob
from ..ship.line_times import LineTimes
from ..ship.lines.log_start import start_pattern
from ..ship.lines.names import MAX_NAME_BYTES
from ..ship.lines.parsers import make_parser
from ..ship.lines.parsers.delimited import checked_delimiter, column_names
from ..ship.report import Shipment, counted, outcomes, summary
from ..ship.standard_input import STANDARD_INPUT
from ..text.names import LOGSTORE_RULE, is_logstore_name
from ..text.printable import message
from ..wire.encodings import is_utf8
from .arguments.ship import add_arguments
from .profiles import Settings, UsageError, resolve

__all__ = ["add_arguments", "job_of", "run"]

_OK, _FAILED, _USAGE, _INTERRUPTED = 0, 1, 2, 130


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does; names and foreign words in texts forge no lines."""
        super().print(*(message(each) if isinstance(each, str) else each for each in objects), **options)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line, whose exit code tells it apart; rich would end the process with 1."""
        raise BrokenPipeError


def run(args: argparse.Namespace) -> int:
    """Run ``producer ship``; the exit code."""
    console = _Console()
    errors = _Console(stderr=True, soft_wrap=True)
    try:
        if args.dry_run:
            return _OK if _dry_run(args, console) else _FAILED
        shipment = _ship(args, console)
    except KeyboardInterrupt:
        errors.print(f"interrupted: {_after_interrupt(args.checkpoint)}", markup=False, highlight=False)
        return _INTERRUPTED
    except ProducerError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        return _USAGE
    console.print(summary(shipment))
    for line in [*outcomes(shipment), *_of_another_start(args, shipment)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    # The same sentence may be both.
    unread = [] if args.allow_unread else [f"{path}: {reason}" for path, reason in shipment.unread]
    reasons = dict.fromkeys([*shipment.figures.lost, *filter(None, [shipment.failure]), *unread])
    for reason in reasons:
        errors.print(f"error: {reason}", style="red", markup=False, highlight=False)
    if unread:
        advice = "Fix that, leave it out with --exclude, or let it be with --allow-unread"
        errors.print(f"{counted(len(unread), 'path')} could not be read. {advice}", highlight=False)
    return _FAILED if reasons else _OK


def _of_another_start(args: argparse.Namespace, shipment: Shipment) -> Iterator[str]:
    """What the same command does, or has just done, when it is started again."""
    if shipment.failure is not None:
        return  # that is told with what became of the files
    # A line that goes on in a known file is new, too.
    shipped = shipment.figures.files or shipment.figures.lines
    if shipped and not shipment.figures.lines:
        yield "nothing was sent: what was read has no line"
    if args.checkpoint and not shipped:
        yield f"nothing new: all that is there was shipped before, says the checkpoint {args.checkpoint}"
    if shipment.figures.lines and not args.checkpoint and STANDARD_INPUT not in args.paths:
        followed = all(scheme_of(path) is None for path in args.paths)
        how = "--follow --once --checkpoint DIR a run sends only what those before it have not"
        other = "--exclude it leaves out what you name"
        yield f"Run again, this command sends all of this again; with {how if followed else other}"


def _after_interrupt(checkpoint: str | None) -> str:
    if checkpoint:
        return f"started again with --checkpoint {checkpoint}, it goes on behind what the checkpoint has"
    return "what is not in the table of a finished run may or may not have arrived"


def _dry_run(args: argparse.Namespace, console: Console) -> bool:
    job = job_of(args, os.environ)
    return dry_run(
        job,
        args.paths,
        exclude=args.exclude,
        allow_links_to=args.allow_links_to,
        allow_unread=args.allow_unread,
        following=_follow_options(args),
        console=console,
    )


def _ship(args: argparse.Namespace, console: Console) -> Shipment:
    return ship(
        job_of(args, os.environ),
        args.paths,
        exclude=args.exclude,
        allow_links_to=args.allow_links_to,
        allow_unread=args.allow_unread,
        following=_follow_options(args),
        engine=args.engine,
        master=args.master,
        workers=args.workers,
        partition_bytes=args.partition_bytes,
        settle=args.settle,
        console=console,
    )


def job_of(args: argparse.Namespace, environ: Mapping[str, str]) -> ShipJob:
    """The job that the arguments describe.

    :param args: of a parser with :func:`add_arguments`.
    :param environ: the environment, for credentials that are not among the arguments.
    :raises ProducerError: something is missing or wrong; says what.
    """
    make_parser(args.parser, args.pattern)
    if STANDARD_INPUT in args.paths and sys.stdin is None:
        raise InputError("there is no standard input: name a PATH, or give one, such as with a pipe")
    settings, project, logstore = _target(args, environ)
    if not is_logstore_name(logstore):
        raise InputError(f"--logstore {LOGSTORE_RULE}, got {logstore!r}")
    delimiter, columns = _delimited(args)
    job = ShipJob(
        project=project,
        logstore=logstore,
        topic=args.topic,
        source=args.source,
        parser=args.parser,
        pattern=args.pattern,
        delimiter=delimiter,
        columns=columns,
        multiline_start=_multiline_start(args),
        exactly_once=args.exactly_once,
        file_offset=args.file_offset,
        line_time=_line_times(args),
        encoding=_encoding(args),
        max_line_bytes=args.max_line_bytes,
        producer=settings.producer_options() | _options(args.producer_option),
        ack_timeout=args.ack_timeout,
    )
    job.config  # noqa: B018  (it is checked)
    check_text("--topic", args.topic)
    check_text("--source", args.source or "")
    return job


def _target(args: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Settings, ProjectConfig, str]:
    """Where to, and who signs."""
    try:
        settings = resolve(args, environ)
        return settings, settings.project_config(), settings.needed("logstore")
    except UsageError as error:
        raise InputError(str(error)) from error


def _delimited(args: argparse.Namespace) -> tuple[str, tuple[str, ...] | None]:
    """The delimiter and the columns that were given for the parser ``delimited``."""
    if args.parser != "delimited":
        for name in ("delimiter", "columns"):
            if getattr(args, name) is not None:
                raise InputError(f"--{name} belongs to --parser delimited, and the parser is {args.parser}")
        return ",", None
    delimiter = "," if args.delimiter is None else checked_delimiter(args.delimiter)
    if args.columns is None:
        return delimiter, None
    names = tuple(name.strip() for name in args.columns.split(","))
    if column_names(names) is None:
        raise InputError(f"--columns: a name has more than {MAX_NAME_BYTES} bytes, in {args.columns!r}")
    return delimiter, names


def _encoding(args: argparse.Namespace) -> str:
    """The encoding that files are converted from; empty if they are UTF-8."""
    try:
        if is_utf8(args.encoding):
            return ""
    except LookupError as error:
        raise InputError(f"--encoding {args.encoding!r} is no encoding of text that Python knows") from error
    if args.follow or args.exactly_once:
        raise InputError(
            "--encoding is for files that are shipped once, and for standard input: leave out --follow and "
            "--exactly-once; the agent's source taildir follows such files (encoding), and so does "
            f"tail -c +1 -F FILE | producer ship - --encoding {args.encoding}"
        )
    return str(args.encoding)


def _line_times(args: argparse.Namespace) -> LineTimes | None:
    """How lines tell their time; each of the options asks for it."""
    times = LineTimes(args.line_time_zone, args.line_time_format)
    times.check()
    return times if args.line_time or times != LineTimes() else None


def _multiline_start(args: argparse.Namespace) -> str | None:
    pattern: str | None = args.multiline_start
    if pattern is not None:
        start_pattern(pattern)
        if args.parser == "delimited" and args.columns is None:
            raise InputError("--multiline-start with --parser delimited needs --columns: a header is no log")
    return pattern


def _options(pairs: Iterable[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError("--producer-option", "must be NAME=VALUE, such as linger_ms=200", pair)
        options[name.strip()] = value.strip()
    return options


def _follow_options(args: argparse.Namespace) -> FollowOptions | None:
    if args.once and not args.follow:
        raise InputError("--once belongs to --follow")
    if not args.follow and not args.exactly_once:
        if args.checkpoint:
            raise InputError("--checkpoint belongs to --follow or --exactly-once")
        return None
    if not args.checkpoint:
        what = "--follow" if args.follow else "--exactly-once"
        raise InputError(f"{what} needs --checkpoint DIR, a directory to remember how far each file was shipped")
    paths = [_lasting_path(path, args) for path in args.paths]
    return FollowOptions(
        paths=paths,
        exclude=args.exclude,
        allow_links_to=args.allow_links_to,
        allow_unread=args.allow_unread,
        checkpoint=checkpoint_directory(args.checkpoint, paths),
        follow=args.follow,
        once=args.once,
        interval=args.interval,
        settle=args.settle,
        partition_bytes=args.partition_bytes,
    )


def _lasting_path(path: str, args: argparse.Namespace) -> str:
    """A path that means the same wherever the command is started again, and may be kept in a checkpoint."""
    if scheme_of(path) is None:
        return os.path.abspath(local_path(path))  # a glob is not a path yet
    if args.follow:
        raise InputError(
            f"{shown(path)}: --follow is for files of a file system, which grow and keep their inodes; ship "
            "remote files when they are complete, without --follow"
        )
    if has_secret(path):
        raise InputError(
            f"{shown(path)}: --exactly-once would have to keep what is secret in this address (a password, a query) in "
            "its checkpoint; use ~/.netrc, or an address without a query"
        )
    return path
