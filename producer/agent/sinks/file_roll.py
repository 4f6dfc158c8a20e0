r"""Write events into files of a directory, one file after another. Modelled on Flume's ``RollingFileSink``.

A file is written under a hidden name, ``.SINK~NAME``. It gets its own name when it is complete: after a time, at a
size, or when the sink ends. So a reader of the directory sees only complete files, none empty. With ``fsync`` events
are on the disk before their take is committed.

A failed write is truncated to the last acknowledged byte. A hidden file left by a crash is completed at the next start.
With ``fsync`` and a single sink on a file channel, each event is written exactly once, even after a crash
(:mod:`.written`). Otherwise events that were written and not committed are duplicated.

Lines are the bodies, each followed by ``\n``. With ``json`` a line is ``{"headers": {…}, "body": "…"}``, or has
``body_base64`` in place of ``body`` if the body is not UTF-8.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ...model.errors import ChannelError
from ...model.options import option
from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...runtime.whole_file import sync_directory
from ..config.flume_keys import in_small_letters, serializer_of
from ..events.batch import EventBatch
from ..events.interfaces import Context, SinkError
from .json_lines import json_line
from .written import Written

_log = get_logger("loghub.agent.sink.file_roll")

_LOOK_BACK = 1 << 16


class FileRollSink:
    """Sink that writes files, one after another, into a directory. Modelled on Flume's ``RollingFileSink``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``file_roll``."""

        directory: Path = option(flume="sink.directory", doc="directory for the files; created if it is missing")
        roll_interval: float = option(
            30.0, flume="sink.rollInterval", least=0, doc="seconds after which a file ends; 0 for no limit"
        )
        roll_size: int = option(
            0, flume="sink.rollSize", least=0, unit="bytes", doc="bytes after which a file ends; 0 for no limit"
        )
        batch_size: int = option(10_000, flume="sink.batchSize", least=1, doc="maximum events written at once")
        serializer: str = option("text", flume="sink.serializer", doc="format of a line", choices=("text", "json"))
        append_newline: bool = option(True, flume="sink.serializer.appendNewline", doc="add a line end to each text")
        path_manager: str = option(
            "default",
            flume="sink.pathManager",
            doc="time in names: milliseconds since the epoch, or yyyyMMddHHmmss in local time",
            choices=("default", "rolltime"),
        )
        prefix: str = option("", flume="sink.pathManager.prefix", doc="prefix of names")
        extension: str = option("", flume="sink.pathManager.extension", doc="extension of names, without the dot")
        fsync: bool = option(True, doc="sync files to the disk before the take is committed")

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Convert Flume's capitalized values."""
            found = in_small_letters(texts, "sink.pathManager")
            return {key: serializer_of(value) if key == "sink.serializer" else value for key, value in found.items()}

    most_bytes = 8 << 20

    @staticmethod
    def render_sample(options: Options, event: EventBatch, _clock: Clock) -> str:
        """Return the text of an event in a file."""
        return _text(options, event).decode(errors="backslashreplace")

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock = options, context.clock
        self.most_events = options.batch_size
        self._hidden = f".{context.name}~"
        self._number = 0
        self._started = self._stamp()
        self._file: _OpenFile | None = None
        options.directory.mkdir(parents=True, exist_ok=True)
        self._written = Written(context.state, context.name) if options.fsync else None
        try:
            self._finish_old()
        except BaseException:
            self._close_notes()
            raise

    def write(self, batches: Sequence[EventBatch]) -> None:
        try:
            self.tick()
            batches = [batch for batch in batches if self._written is None or not self._written.has(batch)]
            if not batches:
                return
            if self._file is None:
                self._file = self._open()
            self._append(self._file, batches)
            if 0 < self._options.roll_size <= self._file.size:
                self._roll()
        except OSError as error:
            raise SinkError(f"{self._options.directory}: {error.strerror or error}") from error

    def _append(self, file: _OpenFile, batches: Sequence[EventBatch]) -> None:
        """Write batches, and note that they are written: all of them, or none."""
        before = file.size
        try:
            if self._written is not None and self._written.is_new:
                # Otherwise a crash before the first note would leave unacknowledged lines that look valid.
                self._written.note(file.hidden.name, before, [])
            file.append((_text(self._options, batch) for batch in batches), self._options.fsync)
            if self._written is not None:
                self._written.note(file.hidden.name, file.size, batches)
        except ChannelError as error:
            file.shorten(before)
            raise SinkError(f"{self._options.directory}: {error}") from error

    def tick(self) -> None:
        """Complete the file if its time is over."""
        interval = self._options.roll_interval
        if self._file is not None and interval and self._clock.monotonic() - self._file.opened >= interval:
            self._roll()

    def close(self) -> None:
        try:
            self._roll()
        finally:
            self._close_notes()

    def _close_notes(self) -> None:
        if self._written is not None:
            self._written.close()

    def _roll(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            _finish(file, self._options.fsync)
            if self._written is not None:
                self._written.ended(file.hidden.name)

    def _open(self) -> _OpenFile:
        options = self._options
        while True:
            self._number += 1
            stamp = self._started if options.path_manager == "default" else self._stamp()
            extension = f".{options.extension}" if options.extension else ""
            path = options.directory / f"{options.prefix}{stamp}-{self._number}{extension}"
            with contextlib.suppress(FileExistsError):
                if not path.exists():
                    file = _OpenFile(options.directory / f"{self._hidden}{path.name}", path, self._clock.monotonic())
                    if options.fsync:
                        sync_directory(options.directory)
                    return file

    def _stamp(self) -> str:
        now = self._clock.time()
        if self._options.path_manager == "default":
            return str(int(now * 1000))
        return datetime.fromtimestamp(now).strftime("%Y%m%d%H%M%S")  # in local time

    def _finish_old(self) -> None:
        """Complete the files left by a crash."""
        for hidden in sorted(self._options.directory.glob(f"{self._hidden}*")):
            with contextlib.suppress(BlockingIOError, FileNotFoundError):  # another process writes it
                file = _OpenFile(hidden, hidden.with_name(hidden.name.removeprefix(self._hidden)), 0.0, new=False)
                self._cut(file)
                _log.warning("%s was open at a crash, with %d bytes; it is completed", hidden, file.size)
                _finish(file, self._options.fsync)
                if self._written is not None:
                    self._written.ended(hidden.name)

    def _cut(self, file: _OpenFile) -> None:
        """Remove unacknowledged bytes; without a note, an unfinished last line."""
        if self._written is not None and not self._written.is_new:
            noted = self._written.size_of(file.hidden.name)
            if noted > file.size:
                _log.error("%s has %d bytes of %d written: some events may be repeated", file.hidden, file.size, noted)
                self._written.forget_numbers()
            file.shorten(min(noted, file.size))
        elif self._options.append_newline or self._options.serializer == "json":
            file.cut_half_line()


def _text(options: FileRollSink.Options, batch: EventBatch) -> bytes | bytearray:
    if options.serializer == "json":
        text = bytearray()  # objects of short lines would need many times their bytes
        for headers, body in batch.events():
            text += json_line(headers, body)
        return text
    return batch.lines() if options.append_newline else b"".join(batch.bodies())


class _OpenFile:
    """A file being written, locked by this process.

    :param hidden: the hidden name.
    :param path: the name of the completed file.
    :param opened: monotonic seconds.
    :param new: True to create the file, False to open an existing one.
    :ivar size: bytes up to the last acknowledged one.
    """

    def __init__(self, hidden: Path, path: Path, opened: float, *, new: bool = True) -> None:
        self.hidden, self.path, self.opened = hidden, path, opened
        self._file = hidden.open("xb" if new else "r+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.size = self._file.seek(0, os.SEEK_END)
        except BaseException:
            self._file.close()
            raise
        self._is_clean = True

    def append(self, texts: Iterable[bytes | bytearray], sync: bool) -> None:
        """Write texts in order; a failed write is removed, at once or before the next write.

        :raises OSError: the write failed.
        """
        if not self._is_clean:
            self._take_back()
        self._is_clean, written = False, 0
        try:
            for text in texts:
                self._write(text)
                written += len(text)
            if sync:
                os.fdatasync(self._file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):  # the next write tries it again; the first error is raised
                self._take_back()
            raise
        self.size += written
        self._is_clean = True

    def cut_half_line(self) -> None:
        """Remove the bytes after the last line end."""
        end = self.size
        while end:
            begin = max(0, end - _LOOK_BACK)
            found = os.pread(self._file.fileno(), end - begin, begin).rfind(b"\n")
            end = begin + found + 1 if found >= 0 else begin
            if found >= 0:
                break
        if end < self.size:
            self.shorten(end)
            self._take_back()

    def shorten(self, size: int) -> None:
        """Set the acknowledged size; the bytes after it are removed before the next write, or at the end."""
        self.size, self._is_clean = size, False

    def settle(self, sync: bool) -> None:
        """Remove all unacknowledged bytes."""
        if not self._is_clean:
            self._take_back()
        if sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, text: bytes | bytearray) -> None:
        left = memoryview(text)
        while left:
            left = left[self._file.write(left) :]

    def _take_back(self) -> None:
        os.ftruncate(self._file.fileno(), self.size)
        self._file.seek(self.size)
        self._is_clean = True


def _finish(file: _OpenFile, sync: bool) -> None:
    """Rename a file to its own name, or delete an empty one; if that fails, the next start does it."""
    try:
        file.settle(sync)
        if file.size == 0:
            file.hidden.unlink()
        else:
            file.hidden.rename(_free(file.path))
        if sync:
            sync_directory(file.path.parent)
    finally:
        file.close()


def _free(path: Path) -> Path:
    """Return the path, or a similar one that does not exist."""
    free, number = path, 0
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}.{number}{path.suffix}")
    return free
