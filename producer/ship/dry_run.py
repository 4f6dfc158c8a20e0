"""Show the files that ``producer ship`` would ship, and the record of each first line, with ``--dry-run``.

It does everything that the command does before it sends, including the check of the logstore.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast

from rich.console import Console
from rich.filesize import decimal

from ..client.producer import Producer
from ..model.errors import ProducerError
from ..model.records import LogItem
from ..text.printable import shown
from .command import check_files_left, check_target, print_skipped
from .errors import InputError
from .figures import Figures
from .files.log_file import LogFile
from .job import ShipJob
from .options import ShipOptions
from .report import counted
from .sending import PortionSender
from .standard_input import STANDARD_INPUT

_CHARACTERS_SHOWN = 500


def dry_run(job: ShipJob, options: ShipOptions, console: Console) -> bool:
    """Print the files that would be shipped, without sending anything.

    :param options: the paths, without a checkpoint: only that knows the lines that are already shipped.
    :return: True if every named or found file can be read.
    :raises ProducerError: an argument is invalid, or the logstore is unavailable.
    """
    if options.checkpoint or STANDARD_INPUT in options.paths:
        raise InputError("--dry-run lists the files that exist now: leave out --follow, --exactly-once and -")
    found = options.search(lenient=options.allow_unread, encoding=job.encoding).all()
    unread = (*found.unread, *found.absent)
    print_skipped((*found.skipped, *unread), console)
    check_files_left(len(found.files), found.skipped, options.paths)
    check_target(job)
    with Producer(job.project, config=job.config) as producer:
        sender = PortionSender(producer, job)
        readable = [_print_file(sender, file, console) for file in found.files]
    _print(console, f"{counted(len(found.files), 'file')}, {decimal(found.size)}, to {job.target}: nothing was sent")
    return all(readable) and (options.allow_unread or not unread)


def _print_file(sender: PortionSender, file: LogFile, console: Console) -> bool:
    """Print one file with its first record. Return True if it can be read."""
    packed = f", {file.compression}" if file.compression else ""
    name = f"{file.path}: {decimal(file.size)}{packed}"
    figures = Figures()
    try:
        items = sender.first(file, figures)
    except ProducerError as error:
        _print(console, f"{name}, {error}")
        return False
    known = f", {len(items) - figures.unparsed:,} of the first {len(items):,} in a known format" if items else ""
    _print(console, f"{name}{known}")
    if items:
        _print(console, f"  {_shown(items[0])}")
    return True


def _shown(item: LogItem) -> str:
    time: dict[str, Any] = {} if item.time is None else {"__time__": _moment(item)}
    text = json.dumps(time | dict(item.contents), ensure_ascii=False)
    return text if len(text) <= _CHARACTERS_SHOWN else f"{text[:_CHARACTERS_SHOWN]}…"


def _moment(item: LogItem) -> str:
    moment = datetime.fromtimestamp(cast("int", item.time), UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{item.time_ns:09}" if item.time_ns else "") + "+00:00"


def _print(console: Console, text: str) -> None:
    console.print(shown(text), markup=False, highlight=False, soft_wrap=True)
