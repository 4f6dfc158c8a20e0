"""SpoolDirectorySource: the source that the agent runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....runtime.clock import Clock, Stop
from ....runtime.file_identity import Key
from ....runtime.loggers import get_logger
from ....wire.encodings import in_order
from ...events.batch import EventBatch, Position
from ...events.interfaces import Context, Lag, Outlet
from ..reading.cutting import Block, Rules
from ..reading.identity import FileName, is_compressed, parse_name
from ..reading.notices import Notices
from ..reading.reader import ContentChangedError, FileReader
from .directory import SpoolDirectory, Waiting
from .events import EventMaker
from .options import SpoolDirectoryOptions

_log = get_logger("loghub.agent.spooldir")

#: Seconds between two removals of deleted files' positions; a channel may note one when it delivers the last events.
_SWEEP_INTERVAL = 60.0
#: Maximum number of files that were put and are not safe yet; at this limit reading pauses.
_MOST_UNSAFE = 1000


@dataclass(slots=True)
class _Seen:
    """The last observed change of a file; ``since`` in monotonic seconds."""

    size: int
    mtime_ns: int
    since: float


class SpoolDirectorySource:
    """Source of whole files that are moved into a directory. Modelled on Flume's ``SpoolDirectorySource``."""

    endless = True

    Options = SpoolDirectoryOptions

    @staticmethod
    def decode_sample(options: SpoolDirectoryOptions, data: bytes, _clock: Clock) -> EventBatch:
        """Return the events of a file's content, without the headers of its path."""
        maker, position = EventMaker(options), Position("sample", len(data))
        if options.deserializer == "BLOB":
            return maker.blob(data, {}, position)
        lines = maker.lines(data, in_order(options.encoding, data), first=True)
        return maker.batch(lines.data, {}, position)

    def __init__(self, options: SpoolDirectoryOptions, context: Context) -> None:
        self._options, self._context = options, context
        self._spooler: Spooler | None = None

    def lag(self) -> Lag:
        return Lag(bytes=0, seconds=0.0) if self._spooler is None else self._spooler.lag()

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """:raises SpoolDirectoryError: the directory is missing, or another source reads it."""
        self._spooler = spooler = Spooler(self._options, self._context, outlet, stop)
        try:
            while not stop.is_set():
                if not spooler.look():
                    stop.wait(self._options.poll_delay)
        finally:
            spooler.close()


class Spooler:
    """One run of the source.

    :ivar _unsafe: readers of files that were put completely, by path.
    :ivar _names: names of files that were put at least in part, and are not completed.
    :ivar _given: names made in this run.
    :ivar _behind: waiting files that were not put completely.
    :ivar _warned: paths with a logged problem; ``_troubled`` are those of this scan.
    """

    def __init__(self, options: SpoolDirectoryOptions, context: Context, outlet: Outlet, stop: Stop) -> None:
        self._options, self._context, self._outlet, self._stop = options, context, outlet, stop
        self._directory = SpoolDirectory(options)
        self._maker = EventMaker(options)
        self._rules = Rules(
            None, options.max_line_bytes, 0.0, 0.0, None, options.encoding, options.delimiter, final=True
        )
        self._notices = Notices(_log, context.counters, options.encoding, "encoding")
        self._seen: dict[Key, _Seen] = {}
        self._unsafe: dict[str, FileReader] = {}
        self._behind: dict[str, os.stat_result] = {}
        self._warned: set[str] = set()
        self._troubled: set[str] = set()
        self._names: dict[Key, FileName] = {}
        self._given: set[FileName] = set()
        self._next_sweep = context.clock.monotonic()

    def close(self) -> None:
        """Close all files, and release the directory."""
        for reader in self._unsafe.values():
            reader.close()
        self._directory.close()

    def lag(self) -> Lag:
        """Return the size of the waiting files and the age of the oldest; may be called on any thread."""
        behind = tuple(self._behind.values())
        oldest = min((status.st_mtime for status in behind), default=None)
        age = 0.0 if oldest is None else max(0.0, self._context.clock.time() - oldest)
        return Lag(bytes=sum(status.st_size for status in behind), seconds=age)

    def look(self) -> bool:
        """Scan the directory once, and put complete files; return True if anything was put."""
        self._troubled.clear()
        moved = self._look()
        if not self._stop.is_set():
            self._warned &= self._troubled
            self._context.counters.set(UnreadableCount=len(self._warned))
        return moved

    def _look(self) -> bool:
        now = self._context.clock.monotonic()
        moved = False
        try:
            waiting = self._directory.waiting()
        except OSError as error:
            self._warn_once(str(self._options.spool_directory), f"cannot be read: {error.strerror}; retrying")
            return False
        for path, trouble in self._directory.unreadable.items():
            self._warn_once(path, f"cannot be checked: {trouble.strerror}; retrying")
        self._forget_absent(waiting, now)
        self._behind = {file.path: file.status for file in waiting if file.path not in self._unsafe}
        for file in waiting:
            if self._stop.is_set() or len(self._unsafe) >= _MOST_UNSAFE:
                break
            if file.path not in self._unsafe and self._has_rested(file, now):
                moved = self._take(file, now) or moved
        self._complete_safe()
        return moved

    def _has_rested(self, file: Waiting, now: float) -> bool:
        """Return True if a file has rested long enough, by its modification time and the observed changes."""
        status = file.status
        key = status.st_dev, status.st_ino
        seen = self._seen.get(key)
        if seen is None or (seen.size, seen.mtime_ns) != (status.st_size, status.st_mtime_ns):
            age = self._context.clock.time() - status.st_mtime if seen is None else 0.0
            seen = self._seen[key] = _Seen(status.st_size, status.st_mtime_ns, now - max(0.0, age))
        return now - seen.since >= self._options.settle

    def _forget_absent(self, waiting: Sequence[Waiting], now: float) -> None:
        """Forget the state of deleted files, and at intervals their positions."""
        present = {(file.status.st_dev, file.status.st_ino) for file in waiting}
        self._seen = {key: seen for key, seen in self._seen.items() if key in present}
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_INTERVAL
        names = filter(None, map(parse_name, self._outlet.names()))
        for name in sorted(names, key=lambda each: -each.generation):
            key = name.device, name.inode
            if key not in present or self._names.setdefault(key, name) != name:
                self._outlet.forget(str(name))
        self._names = {key: name for key, name in self._names.items() if key in present}
        self._given.intersection_update(self._names.values())

    # -- one file

    def _take(self, file: Waiting, now: float) -> bool:
        """Put what a file has; return True if anything was put."""
        reader = FileReader(file.path, "", (file.status.st_dev, file.status.st_ino), self._rules, now)
        reader.headers = self._headers(file.path)
        start = 0
        try:
            self._resume(reader)
            start = reader.position
            if self._options.deserializer == "LINE" and is_compressed(reader.open()):
                self._warn_once(file.path, "it is compressed and not read")
            elif self._put_all(reader, now):
                self._unsafe[file.path] = reader
                self._behind.pop(file.path, None)
        except ContentChangedError:
            self._replaced(reader)
        except UnicodeDecodeError as error:
            aside = self._directory.put_aside(file.path)
            _log.error("%s is not %s: %s; renamed to %s", file.path, self._options.encoding, error.reason, aside)
        except OSError as error:
            self._warn_once(file.path, f"cannot be read: {error.strerror}; retrying")
        finally:
            reader.close()
        return reader.position > start

    def _put_all(self, reader: FileReader, now: float) -> bool:
        """Put a file to its end; return False if ``stop`` was set before."""
        reader.look(now)
        for block, batch in self._batches(reader, now):
            if batch.count and not self._outlet.put_until(batch, self._stop):
                return False
            reader.take(block)
        return not self._stop.is_set()

    def _resume(self, reader: FileReader) -> None:
        """Continue at the channels' position."""
        name = self._names.get(reader.key)
        if name is None:
            return
        ends, status = self._outlet.ends(str(name)), os.fstat(reader.open())
        if status.st_mtime_ns != name.generation and name not in self._given:
            # Another file with the inode of one that was completed just before a crash. A file that was written
            # while the agent was down is read again as a whole: duplicates are better than a loss.
            self._forget(reader.key)
            return
        again = status.st_size == ends[-1] and status.st_mtime_ns != name.generation  # rewritten with the same size
        if again or not reader.resume(name, None, ends):
            raise ContentChangedError

    def _batches(self, reader: FileReader, now: float) -> Iterator[tuple[Block, EventBatch]]:
        if self._options.deserializer == "BLOB":
            return self._blobs(reader)
        return self._lines(reader, now)

    def _lines(self, reader: FileReader, now: float) -> Iterator[tuple[Block, EventBatch]]:
        while (block := reader.read(now)) is not None:
            self._notices.look(reader.place, reader.key, block)
            position = self._position(reader, block)
            first = block.end == len(block.data)
            lines = self._maker.lines(block.data, reader.encoding, first=first)
            self._notices.count(reader.place, reader.key, lines.replaced)
            yield block, self._maker.batch(lines.data, reader.headers, position)

    def _blobs(self, reader: FileReader) -> Iterator[tuple[Block, EventBatch]]:
        while data := os.pread(reader.open(), self._options.max_blob_length, reader.position):
            block = Block(data, reader.position)
            yield block, self._maker.blob(data, reader.headers, self._position(reader, block))

    def _position(self, reader: FileReader, block: Block) -> Position:
        if reader.name is None:
            # The modification time distinguishes it from an earlier file with this inode and these first bytes.
            name = reader.name_by(block.raw, os.fstat(reader.open()).st_mtime_ns)
            self._names[reader.key] = name
            self._given.add(name)
        return Position(str(reader.name), block.end, reader.place)

    def _headers(self, path: str) -> dict[str, str]:
        options, headers = self._options, {}
        if options.file_header:
            headers[options.file_header_key] = path
        if options.basename_header:
            headers[options.basename_header_key] = os.path.basename(path)
        return {name: os.fsencode(value).decode(errors="backslashreplace") for name, value in headers.items()}

    def _replaced(self, reader: FileReader) -> None:
        """Read a file again from byte 0, since its bytes differ from those that were put."""
        _log.error("%s was changed after it was read in part: it is read again from byte 0", reader.place)
        self._forget(reader.key)

    def _forget(self, key: Key) -> None:
        """Forget the position of a file."""
        name = self._names.pop(key, None)
        if name is not None:
            self._given.discard(name)
            self._outlet.forget(str(name))

    # -- completion

    def _complete_safe(self) -> None:
        for path, reader in list(self._unsafe.items()):
            if reader.name is None or self._outlet.is_safe(str(reader.name)):
                del self._unsafe[path]
                self._complete(path, reader)

    def _complete(self, path: str, reader: FileReader) -> None:
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) != reader.key:
                _log.error("%s was replaced by another file before it was completed", path)
                return
            if status.st_size != reader.position:
                _log.warning("%s was written while it was read; its new bytes are read when it has settled", path)
                return
            self._directory.complete(path)
        except FileNotFoundError:
            _log.warning("%s was moved or deleted before it was completed", path)
        except OSError as error:
            self._warn_once(path, f"cannot be completed: {error.strerror}; retrying")
            return
        self._seen.pop(reader.key, None)
        self._forget(reader.key)

    def _warn_once(self, path: str, what: str) -> None:
        self._troubled.add(path)
        if path not in self._warned:
            self._warned.add(path)
            self._context.counters.add(EventReadFail=1)
            self._context.counters.last_error = f"{path}: {what}"
            _log.error("%s: %s", path, what)
