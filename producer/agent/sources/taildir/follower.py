"""Follower: reads each file, and handles its rotation, truncation and deletion."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ....runtime.clock import Stop
from ....runtime.link_targets import LinkTargets
from ....runtime.loggers import get_logger
from ...events.interfaces import Context, Lag, Outlet
from ...recoveries import recoveries
from ..reading.batches import text_of
from ..reading.notices import Notices
from ..reading.reader import ContentChangedError, FileReader
from .file_registry import KnownFiles
from .finder import Finder
from .options import TaildirOptions
from .readers import Readers
from .resume import Beginnings

_log = get_logger("loghub.agent.taildir")

#: Blocks read from one file before other files have their turn.
_BLOCKS_A_TURN = 8
#: Seconds without a write after which a file is watched.
_CALM = 5.0
#: Seconds between two removals of old positions.
_FORGET_INTERVAL = 600.0


class Follower:
    """Reader of all files of one source, on the source's thread.

    :param stop: the event that ends a waiting put, and a scan of very many files.
    """

    def __init__(self, options: TaildirOptions, context: Context, outlet: Outlet, stop: Stop) -> None:
        self._options, self._outlet, self._stop, self._clock = options, outlet, stop, context.clock
        self._counters = context.counters
        self._maker = options.batch_maker()
        groups = options.groups()
        links_to = LinkTargets([*(group.named_directory for group in groups), *options.allow_links_to])
        self._known = KnownFiles(outlet, context.state, context.name, context.clock)
        self._readers = Readers(options.max_open_files)
        try:
            self._beginnings = Beginnings(options, context, outlet, self._known, self._readers, stop, links_to)
        except BaseException:
            self._known.close()
            raise
        known, beginnings = self._known, self._beginnings
        self._finder = Finder(groups, self._readers, known, beginnings, context.clock, stop, links_to)
        self._notices = Notices(_log, context.counters, options.encoding, "encoding")
        self._troubled: set[FileReader] = set()
        self._unreadable = -1
        self._scanned_at = self._clock.monotonic()
        self._next_forget = self._scanned_at + _FORGET_INTERVAL

    def look(self) -> bool:
        """Scan the files once, and put what is new; return True if anything was put."""
        now = self._clock.monotonic()
        self._finder.find(now)
        if self._stop.is_set():
            return False
        moved, due = False, self._readers.due(now - self._scanned_at)
        self._name_new(due, now)
        for reader in due:
            if self._stop.is_set():
                break
            moved = self._advance(reader, now) or moved
        self._scanned_at = now
        self._count_unreadable()
        self._known.write(now=now)
        if now >= self._next_forget and self._finder.sees_all:
            self._known.forget(self._options.forget_after)
            self._next_forget = now + _FORGET_INTERVAL
        return moved

    def _count_unreadable(self) -> None:
        count = len(self._troubled) + self._finder.unreadable
        if count != self._unreadable:
            self._unreadable = count
            self._counters.set(UnreadableCount=count)

    def lag(self) -> Lag:
        """Return the known bytes that were not put, and their age; may be called on any thread."""
        readers = tuple(self._readers.by_key.values())
        times = [since for reader in readers if (since := reader.behind_since) is not None]
        age = self._clock.monotonic() - min(times) if times else 0.0
        return Lag(bytes=sum(reader.unread for reader in readers), seconds=age)

    def close(self) -> None:
        """Close all files, and write the notes."""
        self._readers.close()
        self._known.close()

    def _advance(self, reader: FileReader, now: float) -> bool:
        """Put what is new in a file; return True if anything was put."""
        try:
            before, changed = reader.position, reader.changed
            if reader.look(now):
                self._put_blocks(reader, now)
            elif reader.changed != changed:
                self._readers.written(reader)
            elif now - reader.changed >= _CALM:
                self._watch_or_close(reader, now)
            self._log_recovery(reader)
        except ContentChangedError:
            self._replaced(reader)
            return True
        except OSError as error:
            self._failed(reader, error)
            return False
        return reader.position > before

    def _name_new(self, readers: Iterable[FileReader], now: float) -> None:
        """Give names to files that are read for the first time; their notes take one write."""
        begun: list[FileReader] = []
        for reader in readers:
            if self._stop.is_set():
                break
            with suppress(OSError, ContentChangedError):  # _advance() reports the error
                if reader.name is None and reader.look(now) and (block := reader.read(now)) is not None:
                    self._beginnings.give_name(reader, block.raw)
                    begun.append(reader)
        if begun:
            self._known.begin(begun)

    def _watch_or_close(self, reader: FileReader, now: float) -> None:
        """Watch a file that was read to its end and is not written; close it after the idle timeout."""
        rests = reader.is_read and self._readers.is_live(reader) and self._readers.watch(reader)
        if rests and (reader.look(now) or reader.changed == now):  # written just before the watch was set
            self._readers.wake(reader)
        if now - reader.changed >= self._options.idle_timeout:
            self._rest(reader)

    def _put_blocks(self, reader: FileReader, now: float) -> None:
        self._readers.written(reader)
        for _ in range(_BLOCKS_A_TURN):
            block = reader.read(now)
            if block is None:
                break
            if reader.name is None:
                return  # written just now: the next scan names it
            self._notices.look(reader.place, reader.key, block)
            text = text_of(block, reader.encoding)
            batch = self._maker.batch(block, text.data, reader.headers, str(reader.name), reader.place)
            if not self._outlet.put_until(batch, self._stop):
                return
            self._notices.count(reader.place, reader.key, text.replaced)
            reader.take(block)
            self._known.touch(reader)
        self._readers.keep_open(reader)

    def _rest(self, reader: FileReader) -> None:
        """Close a file that has not been written for a long time."""
        if reader.located:
            self._readers.rest(reader)
        else:
            self._gone(reader)

    def _replaced(self, reader: FileReader) -> None:
        """Begin a truncated or replaced file at byte 0, and look for a copy of its old bytes."""
        self._drop(reader)
        self._beginnings.begin_anew(reader)
        _log.info("%s was truncated or rewritten; reading from byte 0", reader.place)
        if not self._beginnings.resume_in_copy(reader) and reader.cut_off:
            lost = reader.cut_off
            _log.error("%s: %d unread bytes were truncated, and no copy has them", reader.place, lost)

    def _gone(self, reader: FileReader) -> None:
        """Drop a file that no directory has any more; all that could be read was put."""
        self._drop(reader)
        if not self._beginnings.resume_in_copy(reader) and reader.unread:
            _log.error("%s: %d unread bytes were deleted", reader.place, reader.unread)

    def _drop(self, reader: FileReader) -> None:
        self._troubled.discard(reader)
        self._readers.drop(reader)
        self._known.leave(reader)

    def _failed(self, reader: FileReader, error: OSError) -> None:
        """Handle a file that cannot be read: it was deleted, renamed, or has no permission."""
        self._readers.shut(reader)
        if isinstance(error, FileNotFoundError):
            if not reader.located:
                self._gone(reader)
            return  # renamed: the next scan finds the new path
        if reader.trouble is None:
            reader.trouble = error.strerror or str(error)
            self._troubled.add(reader)
            self._counters.add(EventReadFail=1)
            self._counters.last_error = f"{reader.place}: {reader.trouble}"
            _log.warning("%s cannot be read: %s; retrying", reader.place, reader.trouble)
        self._readers.rest(reader)

    def _log_recovery(self, reader: FileReader) -> None:
        if reader.trouble is not None:
            recoveries.info("%s can be read again", reader.place)
            reader.trouble = None
            self._troubled.discard(reader)
