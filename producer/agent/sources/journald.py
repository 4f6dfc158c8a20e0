"""systemd's journal, read by ``journalctl``, which runs as long as the source.

A journal's cursor is text, but a position must be a number. So the source numbers its batches, and stores the cursor of
each batch's last entry before it puts the batch. The channel's commit stores the number. After a crash the source
resumes after the last batch in its channels: no entry is lost, and a file channel stores none twice.

The body of an event is ``MESSAGE``, and ``timestamp`` is its time in milliseconds. The option ``fields`` selects the
other fields that become headers.

``journalctl --follow`` alone reads only the running boot: the last entries before a crash would be lost. With
``--merge`` it reads all boots, and all machines in the directory. It is started at the last cursor, and the source
skips that entry: with ``--after-cursor`` it would skip the next entry if that one was deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...channels.file.store.notes import FileNotes
from ...model.errors import ConfigError, ProducerError
from ...model.options import option
from ...runtime.clock import Stop
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch, Position
from ..events.interfaces import Context, Outlet
from .commands import GATHER, LOOK, SMALL, Command, ExecError, Lines

_log = get_logger("loghub.agent.source.journald")

_NAME, _NOTE = "journal", "cursors"
#: The directories of persistent and of volatile journals, below the root.
_PLACES = ("var/log/journal", "run/log/journal")
_FIELDS = ("PRIORITY", "SYSLOG_IDENTIFIER", "_SYSTEMD_UNIT", "_PID", "_HOSTNAME")
#: Maximum bytes of an entry in JSON. A binary field is a list of numbers there, four bytes for each of its own.
_MOST_LINE = 4 << 20
#: Maximum bytes to hold while the source looks for the entry at which another channel's batch ends. If they have no
#: such entry, the journal has most likely deleted it.
_MOST_HELD = 32 << 20
_PATIENCE = 30.0
#: Maximum characters of a message of ``journalctl`` in an error.
_MOST_SHOWN = 500
#: Approximate number of batch ends to store.
_MOST_NOTED = 200


class JournalError(ProducerError):
    """Raised when ``journalctl`` has ended."""


class JournaldSource:
    """Source of the entries in systemd's journal, read by ``journalctl``."""

    endless = True
    #: Debian's packages of the programs that a container needs.
    packages: ClassVar = ("systemd",)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Selection of entries and fields."""

        start: str = option("begin", doc="where the very first start begins", choices=("begin", "end"))
        units: tuple[str, ...] = option((), doc="read only these units")
        matches: tuple[str, ...] = option((), doc="read only matching entries, such as PRIORITY=3 or _TRANSPORT=kernel")
        fields: tuple[str, ...] = option(_FIELDS, doc='fields that become headers; "all" for all of them')
        command: str = option("journalctl", doc="program to run")
        directory: str | None = option(
            None, doc="directory of another journal than this machine's, or of several machines' directories"
        )
        root: str | None = option(
            None,
            doc="directory with var/log/journal and run/log/journal, such as a host's, mounted in a container",
        )

        def __post_init__(self) -> None:
            if self.directory is not None and self.root is not None:
                raise ConfigError("root", "must not be given together with directory", self.root)

        @property
        def places(self) -> list[Path]:
            """The directories that hold journals."""
            if self.directory is not None:
                return [Path(self.directory)]
            return [Path(self.root or "/", place) for place in _PLACES]

        def arguments(self) -> list[str]:
            """Return the arguments common to all calls of the command."""
            wanted = [] if "all" in self.fields else [f"--output-fields={','.join(('MESSAGE', *self.fields))}"]
            units = [f"--unit={unit}" for unit in self.units]
            place = [] if self.directory is None else [f"--directory={self.directory}"]
            place += [] if self.root is None else [f"--root={self.root}"]
            usual = ["--output=json", "--all", "--merge", "--quiet", "--no-pager"]
            return [self.command, *usual, *wanted, *units, *place]

        def missing(self) -> Iterator[ConfigError]:
            """Yield an error if the program does not exist."""
            if shutil.which(self.command) is None:
                yield ConfigError("command", "there is no such program", self.command)

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """:raises ExecError: ``journalctl`` cannot be run.
        :raises JournalError: it has ended, or there is no directory to read.
        """
        self._context.state.mkdir(parents=True, exist_ok=True)
        notes = FileNotes(str(self._context.state), self._context.name)
        try:
            _Reading(self._options, self._context, notes, outlet, stop).run()
        finally:
            notes.close()


class _Reading:
    """One run of the source.

    :ivar _cursors: the last entry of each batch that a channel may need again, and of the last batch.
    :ivar _known: numbers of batches that only some channels have, by their last entries.
    :ivar _passed: the cursor that reading began at; its entry is skipped. None after that entry.
    """

    def __init__(
        self, options: JournaldSource.Options, context: Context, notes: FileNotes, outlet: Outlet, stop: Stop
    ) -> None:
        self._options, self._context, self._notes = options, context, notes
        self._outlet, self._stop = outlet, stop
        noted = notes.read(_NOTE)
        self._cursors: dict[int, str] = {} if noted is None else {int(n): c for n, c in json.loads(noted)}
        self._known: dict[str, int] = {}
        self._passed: str | None = None
        self._held: list[dict[str, Any]] = []
        self._size = 0

    def run(self) -> None:
        """Run until ``stop``.

        :raises JournalError: ``journalctl`` has ended, or does not see a directory that is new.
        """
        places = self._places()
        self._log_unreadable()
        self._passed, options = self._begin(), self._options
        place = ["--cursor", self._passed] if self._passed else []
        arguments = [*options.arguments(), "--follow", "--no-tail", *place, *options.matches]
        lines = Lines(_MOST_LINE)
        with Command(arguments, options.command, log_errors=True) as command:
            while command.is_open and not self._stop.is_set():
                data = command.read(LOOK)
                if data and not self._take(lines.add(data)):
                    return
                if not data and self._places() != places:
                    raise JournalError("a directory of journals is new: they are read from the last entry on")
                if 0 < len(data) < SMALL:
                    self._stop.wait(GATHER)
            if self._stop.is_set():
                return
            status = command.wait()
        raise JournalError(f"{options.command} ended with the exit status {status}; its messages are in the log")

    def _places(self) -> list[tuple[int, int]]:
        """Return the identities of the directories of journals.

        :raises JournalError: there is none.
        """
        found = []
        for place in self._options.places:
            with suppress(FileNotFoundError, NotADirectoryError):
                status = place.stat()
                found.append((status.st_dev, status.st_ino))
        if not found and (self._options.directory or self._options.root):
            names = " or ".join(map(str, self._options.places))
            raise JournalError(f"there is no directory {names}: in a container, mount that of the host")
        return found

    def _log_unreadable(self) -> None:
        """Log if there is no journal yet, or if ``journalctl`` would silently skip some."""
        places = self._options.places
        files = [file for place in places for depth in ("*", "*/*") for file in place.glob(f"{depth}.journal")]
        names, unreadable = " or ".join(map(str, places)), [str(file) for file in files if not os.access(file, os.R_OK)]
        if not files:
            _log.warning("source %s: no journal is in %s: it waits for the first", self._context.name, names)
        elif unreadable:
            _log.warning(
                "source %s: no permission to read %d of %d journals in %s: add the agent's user to the group"
                " systemd-journal; the first is %s",
                *(self._context.name, len(unreadable), len(files), names, unreadable[0]),
            )

    def _begin(self) -> str | None:
        """Return the cursor of the last entry that was read; None for the beginning of the journal."""
        ends = self._outlet.ends(_NAME)
        self._last, at = ends[-1], self._begun_at(ends)
        if at is not None:
            self._last = max(at, self._last)
            self._outlet.pass_over(Position(_NAME, at))  # a new channel begins at the others' position
            self._known = {_entry_at(cursor): n for n, cursor in self._cursors.items() if at < n <= ends[-1]}
            return self._cursors[at] or None
        if self._last:
            _log.error(
                "source %s: no cursor is noted for the channels' position: the journal is read as at the first start,"
                " and some entries come twice",
                self._context.name,
            )
        newest = self._newest() if self._options.start == "end" else None
        if newest is not None:
            self._last += 1
            self._note(newest)
            self._outlet.pass_over(Position(_NAME, self._last))
        elif not self._last:
            self._note("")  # 0 means the beginning of the journal
        return newest

    def _begun_at(self, ends: Sequence[int]) -> int | None:
        """Return the batch number to continue after; None if no note is usable.

        The lowest stored number may be higher than a channel's. Then the batches below it were safe, which a channel in
        memory does not record.
        """
        known, noted = [end for end in ends if end], sorted(self._cursors)
        first = known[0] if len(known) == 1 else ends[0]  # one of ends may be 0: a new channel beside others that agree
        if not noted or noted[-1] < first:
            return None
        return max((number for number in noted if number <= first), default=noted[0])

    def _newest(self) -> str | None:
        """Return the cursor of the newest entry; None if there is none."""
        arguments = [*self._options.arguments(), "--lines=1", *self._options.matches]
        try:
            done = subprocess.run(arguments, check=False, capture_output=True, timeout=_PATIENCE)
        except (OSError, subprocess.SubprocessError) as error:
            raise ExecError(f"{self._options.command!r} cannot be run: {error}") from error
        if done.returncode:
            said = done.stderr.decode(errors="backslashreplace").strip()[-_MOST_SHOWN:]
            raise JournalError(f"{self._options.command} ended with the exit status {done.returncode}: {said}")
        entries = self._entries(done.stdout)
        return entries[-1]["__CURSOR"] if entries else None

    def _take(self, block: bytes) -> bool:
        """Put the entries of some lines; return False if the source stops."""
        self._size += len(block)
        for entry in self._entries(block):
            place, passed = _entry_at(entry["__CURSOR"]), self._passed
            self._passed = None
            if passed is not None and place == _entry_at(passed):
                continue
            self._held.append(entry)
            number = self._known.pop(place, None) if self._known else None
            if number is not None and not self._put(number):
                return False
        if self._known and self._size > _MOST_HELD:
            name = self._context.name
            _log.error(
                "source %s: the journal no longer holds the last entry of a channel: entries may come twice", name
            )
            self._known.clear()
        return bool(self._known) or not self._held or self._put(None)

    def _put(self, number: int | None) -> bool:
        """Put the held entries, as the batch of that number, or as a new one."""
        held, self._held, self._size = self._held, [], 0
        if number is None:
            number = self._last = self._last + 1
            self._note(held[-1]["__CURSOR"])
        batch = EventBatch.of_events([self._event(entry) for entry in held], Position(_NAME, number))
        return self._outlet.put_until(batch, self._stop)

    def _note(self, cursor: str) -> None:
        """Note the cursor of the last batch, with those that channels may need after a crash."""
        first = min(self._outlet.ends(_NAME)[0], self._outlet.safe_end(_NAME))
        kept = [number for number in self._cursors if number >= first]
        if len(kept) > _MOST_NOTED:  # thin out: all are written with each batch; some entries may come twice
            kept = [*kept[: -_MOST_NOTED // 2 : 2], *kept[-_MOST_NOTED // 2 :]]
        self._cursors = {number: self._cursors[number] for number in kept}
        self._cursors[self._last] = cursor
        self._notes.write(_NOTE, json.dumps(list(self._cursors.items())).encode(), -1)

    def _entries(self, block: bytes) -> list[dict[str, Any]]:
        found = []
        for line in block.splitlines():
            try:
                entry = json.loads(line)
                found.append({**entry, "__CURSOR": str(entry["__CURSOR"])})
            except (ValueError, TypeError, KeyError, RecursionError):
                self._context.counters.add(EventReadFail=1)
                _log.error("source %s: not an entry of a journal: %r", self._context.name, line[:200])
        return found

    def _event(self, entry: dict[str, Any]) -> tuple[dict[str, str], bytes]:
        wanted: Sequence[str] = self._options.fields
        if "all" in wanted:
            wanted = [name for name in entry if not name.startswith("__") and name != "MESSAGE"]
        headers = {name: _bytes(entry[name]).decode(errors="backslashreplace") for name in wanted if name in entry}
        time = str(entry.get("__REALTIME_TIMESTAMP", ""))
        if time.isdecimal():
            headers["timestamp"] = str(int(time) // 1000)
        return headers, _bytes(entry.get("MESSAGE"))


def _entry_at(cursor: str) -> str:
    """Return the part of a cursor that names the entry: boot, times and hash.

    The rest names the file and the number in it, which change when an entry is moved from memory to the disk.
    """
    return cursor.partition(";b=")[2] or cursor


def _bytes(value: Any) -> bytes:
    """Return a field's bytes. A binary field is a list of bytes; a repeated field is a list of values."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, list):
        if all(isinstance(each, int) and 0 <= each < 256 for each in value):
            return bytes(value)
        return b"\n".join(map(_bytes, value))
    return b"" if value is None else json.dumps(value).encode()
