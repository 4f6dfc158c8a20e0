"""The command ``producer ship``: build a job from the arguments, and run it.

Exit codes: 0, every record was acknowledged; 1, a record was not, or a file could not be read; 2, an argument is
invalid, and nothing was sent; 130, interrupted.
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
from ..ship.job import ShipJob
from ..ship.line_times import LineTimes
from ..ship.lines.log_start import start_pattern
from ..ship.lines.names import MAX_NAME_BYTES
from ..ship.lines.parsers import make_parser
from ..ship.lines.parsers.delimited import checked_delimiter, column_names
from ..ship.options import ShipOptions
from ..ship.report import Shipment, counted, outcomes, summary
from ..ship.standard_input import STANDARD_INPUT
from ..text.names import LOGSTORE_RULE, is_logstore_name
from ..text.printable import message
from ..wire.encodings import is_utf8
from .arguments.ship import add_arguments
from .exit_codes import ExitCode
from .profiles import Settings, UsageError, resolve

__all__ = ["add_arguments", "job_of", "run"]


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts with control characters escaped: a file's name must not forge a line."""
        super().print(*(message(each) if isinstance(each, str) else each for each in objects), **options)

    def on_broken_pipe(self) -> None:
        """Raise the error, for the command line's own exit code; rich would exit with 1."""
        raise BrokenPipeError


def run(args: argparse.Namespace) -> int:
    """Run ``producer ship``, and return the exit code."""
    console = _Console()
    errors = _Console(stderr=True, soft_wrap=True)
    try:
        if args.dry_run:
            return ExitCode.OK if dry_run(job_of(args, os.environ), _ship_options(args), console) else ExitCode.FAILED
        shipment = _ship(args, console)
    except KeyboardInterrupt:
        errors.print(f"interrupted: {_after_interrupt(args.checkpoint)}", markup=False, highlight=False)
        return ExitCode.INTERRUPTED
    except ProducerError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        return ExitCode.USAGE
    console.print(summary(shipment))
    for line in [*outcomes(shipment), *_next_run(args, shipment)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    # The same sentence may be among the losses and the failure.
    unread = [] if args.allow_unread else [f"{path}: {reason}" for path, reason in shipment.unread]
    reasons = dict.fromkeys([*shipment.figures.lost, *filter(None, [shipment.failure]), *unread])
    for reason in reasons:
        errors.print(f"error: {reason}", style="red", markup=False, highlight=False)
    if unread:
        advice = "Fix the cause, leave them out with --exclude, or accept that with --allow-unread"
        errors.print(f"{counted(len(unread), 'path')} could not be read. {advice}", highlight=False)
    return ExitCode.FAILED if reasons else ExitCode.OK


def _next_run(args: argparse.Namespace, shipment: Shipment) -> Iterator[str]:
    """Yield what this run shipped of known files, and what the same command would ship next time."""
    if shipment.failure is not None:
        return  # the outcome of each file says it
    # A new line may be in a known file.
    shipped = shipment.figures.files or shipment.figures.lines
    if shipped and not shipment.figures.lines:
        yield "nothing was sent: the files have no lines"
    if args.checkpoint and not shipped:
        yield f"nothing new: according to the checkpoint {args.checkpoint}, everything was shipped before"
    if shipment.figures.lines and not args.checkpoint and STANDARD_INPUT not in args.paths:
        followed = not _encoding(args) and all(scheme_of(path) is None for path in args.paths)
        how = "use --follow --once --checkpoint DIR to send only new lines"
        other = "use --exclude to leave files out"
        yield f"The same command sends all of this again; {how if followed else other}"


def _after_interrupt(checkpoint: str | None) -> str:
    if checkpoint:
        return f"run it again with --checkpoint {checkpoint} to continue after the last checkpoint"
    return "an unknown part of the records has arrived"


def _ship(args: argparse.Namespace, console: Console) -> Shipment:
    return ship(
        job_of(args, os.environ),
        _ship_options(args),
        engine=args.engine,
        master=args.master,
        workers=args.workers,
        console=console,
    )


def job_of(args: argparse.Namespace, environ: Mapping[str, str]) -> ShipJob:
    """Build the job that the arguments describe.

    :param args: the parsed arguments.
    :param environ: the environment, for credentials that are not among the arguments.
    :raises ProducerError: an argument is missing or invalid.
    """
    make_parser(args.parser, args.pattern)
    if STANDARD_INPUT in args.paths and sys.stdin is None:
        raise InputError("there is no standard input: name a PATH, or use a pipe")
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
    job.config  # noqa: B018  (the property checks the options)
    check_text("--topic", args.topic)
    check_text("--source", args.source or "")
    return job


def _target(args: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Settings, ProjectConfig, str]:
    """Return the settings, the project and the logstore."""
    try:
        settings = resolve(args, environ)
        return settings, settings.project_config(), settings.needed("logstore")
    except UsageError as error:
        raise InputError(str(error)) from error


def _delimited(args: argparse.Namespace) -> tuple[str, tuple[str, ...] | None]:
    """Return the delimiter and the columns for the parser ``delimited``."""
    if args.parser != "delimited":
        for name in ("delimiter", "columns"):
            if getattr(args, name) is not None:
                raise InputError(f"--{name} needs --parser delimited, and the parser is {args.parser}")
        return ",", None
    delimiter = "," if args.delimiter is None else checked_delimiter(args.delimiter)
    if args.columns is None:
        return delimiter, None
    names = tuple(name.strip() for name in args.columns.split(","))
    if column_names(names) is None:
        raise InputError(f"--columns: a name has more than {MAX_NAME_BYTES} bytes, in {args.columns!r}")
    return delimiter, names


def _encoding(args: argparse.Namespace) -> str:
    """Return the encoding to convert from; empty for UTF-8."""
    try:
        if is_utf8(args.encoding):
            return ""
    except LookupError as error:
        raise InputError(f"--encoding {args.encoding!r}: Python has no such text encoding") from error
    if args.follow or args.exactly_once:
        raise InputError(
            "--encoding does not work with --follow or --exactly-once: leave them out. To follow such files, use the "
            "agent's source taildir with its option encoding, or "
            f"tail -c +1 -F FILE | producer ship - --encoding {args.encoding}"
        )
    return str(args.encoding)


def _line_times(args: argparse.Namespace) -> LineTimes | None:
    """Return the format of lines' times, or None if no option of it is given."""
    times = LineTimes(args.line_time_zone, args.line_time_format)
    times.check()
    return times if args.line_time or times != LineTimes() else None


def _multiline_start(args: argparse.Namespace) -> str | None:
    pattern: str | None = args.multiline_start
    if pattern is not None:
        start_pattern(pattern)
        if args.parser == "delimited" and args.columns is None:
            raise InputError(
                "--multiline-start with --parser delimited needs --columns, since a header line is not a log"
            )
    return pattern


def _options(pairs: Iterable[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError("--producer-option", "must be NAME=VALUE, such as linger_ms=200", pair)
        options[name.strip()] = value.strip()
    return options


def _ship_options(args: argparse.Namespace) -> ShipOptions:
    if args.once and not args.follow:
        raise InputError("--once needs --follow")
    if args.checkpoint and not (args.follow or args.exactly_once):
        raise InputError("--checkpoint needs --follow or --exactly-once")
    if not args.checkpoint and (args.follow or args.exactly_once):
        option = "--follow" if args.follow else "--exactly-once"
        raise InputError(f"{option} needs --checkpoint DIR, a directory for the offsets of shipped files")
    paths = args.paths
    if args.checkpoint and STANDARD_INPUT not in paths:
        paths = [_lasting_path(path, args) for path in paths]
    return ShipOptions(
        paths=paths,
        exclude=args.exclude,
        allow_links_to=args.allow_links_to,
        allow_unread=args.allow_unread,
        checkpoint=checkpoint_directory(args.checkpoint, paths) if args.checkpoint else "",
        follow=args.follow,
        once=args.once,
        interval=args.interval,
        settle=args.settle,
        partition_bytes=args.partition_bytes,
    )


def _lasting_path(path: str, args: argparse.Namespace) -> str:
    """Return a path for the checkpoint: independent of the working directory, and without secrets.

    :raises InputError: an address cannot be followed, or has a secret.
    """
    if scheme_of(path) is None:
        return os.path.abspath(local_path(path))  # not Path.resolve: it may be a glob
    if args.follow:
        raise InputError(
            f"{shown(path)}: --follow works only for files of a file system; ship remote files when they are complete, "
            "without --follow"
        )
    if has_secret(path):
        raise InputError(
            f"{shown(path)}: --exactly-once would store the secret of this address (a password or a query) in its "
            "checkpoint; use ~/.netrc, or an address without a query"
        )
    return path
