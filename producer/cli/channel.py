"""The command ``producer channel inspect|verify|peek|export|repair|drain DIR``, for the directory of a file channel.

Exit codes: 0, no damage and all delivered; 1, damage or undelivered events; 2, the command cannot run; 130,
interrupted. :mod:`.drain` implements ``drain``, and :mod:`.channel_logs` decodes events.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Sequence
from itertools import islice

from ..channels.file.recovery.inspection import DirectoryReport, examine, look_at_events
from ..channels.file.recovery.repair import repair
from ..channels.file.store.encryption import FileKeys, KeyProvider, check_available
from ..model.errors import ChannelKeyError, ProducerError
from ..text.plural import counted
from . import agent_batches
from .agent_batches import AgentReport
from .arguments.channel import add_arguments
from .channel_logs import FIRST, batched, logs_of
from .drain import drain
from .drain_all import drain_all
from .exit_codes import ExitCode
from .output import say, tell, tell_error, writer
from .profiles import resolve
from .progress import Progress

#: Names for kinds of records. A live record lists the waiting events, none in an empty channel.
_RECORDS = {"live": ("list of waiting events", "lists of waiting events")}
_AFTER_INTERRUPT = {
    "drain": "undelivered events are still in the channel",
    "repair": "nothing is lost, but the repair may be incomplete: run it again",
}


def run(args: argparse.Namespace) -> int:
    """Run ``producer channel``, and return the exit code."""
    actions = {
        "inspect": _inspect,
        "verify": _verify,
        "peek": _show,
        "export": _show,
        "repair": _repair,
        "drain": _drain,
    }
    try:
        return actions[args.action](args)
    except KeyboardInterrupt:
        tell(f"interrupted: {_AFTER_INTERRUPT.get(args.action, 'nothing was changed')}")
        return ExitCode.INTERRUPTED
    except ChannelKeyError as error:
        tell_error(f"channel {args.action}", f"{error} (--key-file FILE)")
        return ExitCode.USAGE
    except ProducerError as error:
        tell_error(f"channel {args.action}", error)
        return ExitCode.USAGE


def _keys(args: argparse.Namespace) -> KeyProvider | None:
    if not args.key_file:
        return None
    check_available()
    return FileKeys(args.key_file)


def _examine(args: argparse.Namespace) -> DirectoryReport:
    return examine(_directory(args), data_directories=_data(args), keys=_keys(args))


def _data(args: argparse.Namespace) -> list[str]:
    """Return the data directories without aliases: an alias would count as a copy."""
    places = {os.path.realpath(_directory(args)): ""}
    for path in args.data_directory:
        places.setdefault(os.path.realpath(path), os.path.abspath(path))
    return [path for path in places.values() if path]


def _directory(args: argparse.Namespace) -> str:
    return os.path.abspath(str(args.directory))


def _inspect(args: argparse.Namespace) -> int:
    report, agents = _examine(args), _agents(args)
    if args.output == "json":
        say(_as_json(report, agents))
    else:
        say(*_lines_of(report, agents))
    return ExitCode.OK


def _verify(args: argparse.Namespace) -> int:
    report, agents = _examine(args), _agents(args)
    damage = [*_damage(report), *(agent_batches.damage(agents) if agents else ())]
    if args.output == "json":
        say(_as_json(report, agents))
    else:
        batches = f", {agent_batches.summary(agents, ' of an agent')}" if agents else ""
        say(*(damage or [f"{report.directory}: every record is valid{batches}"]))
    if report.damaged or (agents is not None and agents.unreadable):
        return ExitCode.FAILED
    return ExitCode.USAGE if report.unchecked else ExitCode.OK


def _agents(args: argparse.Namespace) -> AgentReport | None:
    """Return the report on an agent's batches, or None if a key of encrypted events is missing."""
    try:
        events = look_at_events(_directory(args), data_directories=_data(args), keys=_keys(args))
        return agent_batches.inspect_batches(_directory(args), events)
    except ChannelKeyError:
        return None


def _as_json(report: DirectoryReport, agents: AgentReport | None) -> str:
    return json.dumps({**dataclasses.asdict(report), "agent": None if agents is None else dataclasses.asdict(agents)})


def _lines_of(report: DirectoryReport, agents: AgentReport | None) -> list[str]:
    owner = report.owner
    who = f"process {owner.get('pid')} on {owner.get('host')}" if owner else "unknown"
    events = "unknown: a key is missing (--key-file)" if report.events is None else str(report.events)
    lines = [
        f"directory   {report.directory}",
        f"owner       {who}{' (running: the rest may be a moment old)' if report.in_use else ', which has ended'}",
        f"events      {events}, {counted(report.event_bytes, 'byte')}",
    ]
    if agents is not None:
        lines += agent_batches.lines_of(agents)
    if report.oldest is not None:
        lines.append(f"oldest      put {_age(time.time() - report.oldest)} ago")
    checkpoint = "none" if report.checkpoint is None else f"number {report.checkpoint}"
    lines.append(f"checkpoint  {checkpoint}")
    size = sum(segment.size for segment in report.segments)
    lines.append(f"segments    {len(report.segments)}, {counted(size, 'byte')}")
    for segment in report.segments:
        kinds = sorted(segment.records.items())
        records = ", ".join(counted(count, *_RECORDS.get(kind, (kind,))) for kind, count in kinds) or "empty"
        taken_out = f", {len(segment.gaps)} repaired" if segment.gaps else ""
        key = f", key {segment.key_id}" if segment.key_id else ""
        name, length = os.path.basename(segment.path), counted(segment.size, "byte")
        lines.append(f"  {name}  {length}, {records}{taken_out}{key}")
    if report.quarantine:
        lines.append(f"quarantine  {', '.join(report.quarantine)}")
    return [*lines, *_damage(report), *(agent_batches.damage(agents) if agents else ())]


def _damage(report: DirectoryReport) -> list[str]:
    lines = []
    lossless = "" if any(segment.emptied for segment in report.segments) else ", nothing is lost"
    for segment in report.segments:
        if segment.header_damaged:
            lines.append(f"damaged: {segment.path}: one copy of its header (the other copy is valid)")
        if segment.emptied:
            lines.append(f"damaged: {segment.path}: it ends at byte {segment.size}, before the checkpoint's offset")
        lines += [f"unread: {segment.path}: the disk cannot read bytes {_span(*unread)}" for unread in segment.unread]
        what = "damaged, or torn in a crash" if report.unchecked else "damaged"
        lines += [f"{what}: {segment.path}: bytes {_span(*damage[:2])}" for damage in segment.damages]
        lines += [
            f"torn: {segment.path}: bytes {_span(*torn[:2])}, half written in a crash{lossless}"
            for torn in segment.torn
        ]
    lines += [f"damaged: {path}: no readable header" for path in report.unreadable]
    lines += [f"unknown: {path}: missing when the checkpoint was written" for path in report.unknown]
    if report.bad_checkpoints:
        serves = "" if _hides_events(report) else " (the log is used instead)"
        lines.append(f"damaged: {counted(report.bad_checkpoints, 'copy', 'copies')} of the checkpoint{serves}")
    if report.missing:
        numbers = ", ".join(map(str, report.missing))
        lines.append(
            f"missing: segments {numbers}; mount their directory (--data-directory), or abandon them: "
            "repair --give-up-missing"
        )
    if report.unopened:
        lines.append(
            f"not checked: {counted(report.unopened, 'encrypted record does', 'encrypted records do')} not open"
            " (--key-file: none, or not the right keys)"
        )
    if report.lost_events:
        lines.append(_lost(report.lost_events))
    if report.torn:
        lines.append(f"torn: the log's end was half written in a crash; opening the channel cuts it{lossless}")
    return lines


def _lost(events: int) -> str:
    return f"lost: {counted(events, 'event, by its sequence number', 'events, by their sequence numbers')}"


def _span(start: int, end: int) -> str:
    return f"{start} to {end}"


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return counted(max(0, round(seconds)), "second")


def _repair(args: argparse.Namespace) -> int:
    directory = _directory(args)
    done = repair(directory, data_directories=_data(args), keys=_keys(args), give_up_missing=args.give_up_missing)
    for path, size in done.repaired.items():
        taken = counted(size, "damaged byte was", "damaged bytes were")
        say(f"repaired {path}: {taken} taken out; the original is {done.copies[path]}")
    if done.given_up:
        numbers = ", ".join(map(str, done.given_up))
        say(f"abandoned the missing segments {numbers}; the checkpoints that list them are in {directory}/quarantine")
    if done.lost_events:
        say(_lost(done.lost_events))
    for failure in done.failures:
        say(f"failed: {failure}")
    if not done.repaired and not done.failures:
        say(f"{directory}: no segment needed repair")
    say(*_lines_of(done.after, _agents(args)))
    failed = bool(done.failures or done.after.damaged)
    if done.repaired or failed:
        say("not everything could be repaired" if failed else "all damaged segments are repaired")
    return ExitCode.FAILED if failed else ExitCode.OK


def _show(args: argparse.Namespace) -> int:
    """Print the channel's logs, oldest first, and report damage that hides events."""
    events = look_at_events(_directory(args), data_directories=_data(args), keys=_keys(args))
    printed = writer(args.output, FIRST)
    with Progress("logs") as progress:
        for rows in batched(islice(logs_of(events), args.limit)):
            printed.write(rows)
            progress.add(len(rows))
    printed.close()
    report = _examine(args)
    for line in _damage(report) if _hides_events(report) else ():
        tell(line)
    return ExitCode.FAILED if _hides_events(report) else ExitCode.OK


def _hides_events(report: DirectoryReport) -> bool:
    """Return True if damage or a missing key may hide events."""
    missed = report.unreadable or report.missing or report.unopened or report.lost_events
    return bool(missed) or any(segment.damages or segment.unread or segment.emptied for segment in report.segments)


def _drain(args: argparse.Namespace) -> int:
    directory, settings = _directory(args), resolve(args, os.environ)
    letters = os.path.abspath(args.dead_letter) if args.dead_letter else None
    if args.all:
        complete = drain_all(directory, settings=settings, dead_letter=letters, keys=_keys(args), timeout=args.timeout)
        return ExitCode.OK if complete else ExitCode.FAILED
    outcome = drain(
        directory,
        settings=settings,
        data_directories=_data(args),
        dead_letter=letters,
        keys=_keys(args),
        timeout=args.timeout,
    )
    return ExitCode.OK if outcome.complete else ExitCode.FAILED


__all__: Sequence[str] = ("add_arguments", "run")
