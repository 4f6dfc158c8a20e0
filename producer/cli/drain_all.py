"""Drain the directories of many processes, one after the other, for ``producer channel drain --all``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..channels.file.recovery.inspection import look_at_events
from ..channels.file.recovery.ownership import LOCK_NAME
from ..channels.file.store.encryption import KeyProvider
from ..model.errors import ChannelError, ChannelFormatError, ChannelIOError, ChannelKeyError
from ..text.plural import counted
from .agent_batches import inspect_batches
from .drain import DrainRefusedError, drain
from .output import say, tell_error
from .profiles import Settings


def drain_all(
    base: str,
    *,
    settings: Settings,
    dead_letter: str | None = None,
    keys: KeyProvider | None = None,
    timeout: float | None = None,
) -> bool:
    """Drain each directory below the base of :class:`~producer.channels.ProcessFileChannel`, and print the outcomes.

    A directory that a running process uses, or that cannot be drained, is reported and skipped.

    :param dead_letter: the directory for permanently rejected events; None for one beside ``base``. Below ``base``,
        another process would adopt it.
    :param timeout: the limit in seconds for all directories together; None for no limit.
    :returns: True if every event in every directory was delivered.
    :raises ChannelError: there is no channel below ``base``, or the channels belong to an agent.
    :raises UsageError: the endpoint or credentials are missing.
    """
    directories = _below(base, keys)
    letters = dead_letter or f"{base}.dead-letter"
    end = None if timeout is None else time.monotonic() + timeout
    emptied = 0
    for number, directory in enumerate(directories, 1):
        say(f"{number} of {len(directories)}: {directory}", flush=True)
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            tell_error("channel", f"{directory} was not drained: the time limit (--timeout) has passed")
            continue
        try:
            outcome = drain(directory, settings=settings, dead_letter=letters, keys=keys, timeout=left)
        except (ChannelError, DrainRefusedError) as error:
            tell_error("channel", error)
        else:
            emptied += outcome.complete
    say(f"{emptied} of {counted(len(directories), 'directory is', 'directories are')} delivered")
    return emptied == len(directories)


def _below(base: str, keys: KeyProvider | None) -> list[str]:
    """Return the channels' directories below a base.

    :raises ChannelError: there is none, or the channels belong to an agent.
    """
    name = os.path.basename(base) or base
    if os.path.exists(f"{base}/{LOCK_NAME}"):
        raise ChannelFormatError(name, f"{base} is the directory of a single channel: leave --all out")
    try:
        with os.scandir(base) as entries:
            found = sorted(each.path for each in entries if os.path.exists(f"{each.path}/{LOCK_NAME}"))
    except OSError as error:
        raise ChannelIOError(name, f"{base} cannot be read: {error.strerror}", error.errno or 0) from error
    if not found:
        waiting = _agents_channels(Path(base), keys)
        if waiting:
            rule = "and only its configuration has their target: `producer agent` delivers them"
            raise ChannelFormatError(name, f"{base} has the channels of an agent, {rule}; {', '.join(waiting)}")
        raise ChannelFormatError(name, f"{base} has no channel's directory below it")
    return found


def _agents_channels(base: Path, keys: KeyProvider | None) -> list[str]:
    """Return a line with the number of waiting events for each channel of an agent.

    :param base: the agent's state directory, or the ``channels`` in it.
    """
    locks = [*base.glob(f"*/events/{LOCK_NAME}"), *base.glob(f"channels/*/events/{LOCK_NAME}")]
    return [f"{lock.parent.parent.name}: {_waiting(lock.parent, keys)}" for lock in sorted(locks)]


def _waiting(directory: Path, keys: KeyProvider | None) -> str:
    try:
        report = inspect_batches(str(directory), look_at_events(str(directory), keys=keys))
    except ChannelKeyError:
        return "not counted, a key is missing (--key-file)"
    except ChannelError as error:
        return f"not counted: {error}"
    return counted(report.events if report else 0, "event")
