"""Commands whose output is read: a running command with its guard, and the lines of its output.

The command has no input. It runs in a process group of its own, which ends with it: SIGTERM first, and SIGKILL after
some seconds. If this process dies instead, even by ``kill -9``, a guard ends the group. The guard is a small process
that leads the group and reads from a pipe; this process holds the only other end, so the read returns when it dies.
Processes that the command starts in another group or session are not ended.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from ...model.errors import ProducerError
from ...runtime.loggers import get_logger
from ...wire.encodings import MARK, in_order

_log = get_logger("loghub.agent.exec")

_READ_BYTES = 1 << 20
#: Bytes of a byte order mark.
_LONGEST_MARK = 4
#: Seconds between two checks whether to stop.
LOOK = 0.2
#: Bytes of a read. After a shorter one, the source waits this many seconds for more, since a commit for each line would
#: cost too much.
SMALL, GATHER = 64 << 10, 0.01
#: Seconds for the command to end after SIGTERM.
_GRACE = 2.0

_GUARD = "import os,signal;signal.signal(15,signal.SIG_IGN);os.read(0,1);os.killpg(0,9)"
_PIPE_BYTES = 1 << 20


class ExecError(ProducerError):
    """Raised when the command cannot be run."""


class Lines:
    """Splitter of the output into whole lines.

    :param most: maximum bytes of a line; a longer one is split.
    :param charset: encoding of the output; others than UTF-8 are converted to it.
    """

    def __init__(self, most: int, charset: str = "UTF-8") -> None:
        self._most = most
        self._charset = None if codecs.lookup(charset).name in ("utf-8", "ascii") else charset
        self._decoder: codecs.IncrementalDecoder | None = None
        #: The first bytes, as long as they may be a byte order mark of another encoding.
        self._head = b""
        #: The first bytes, as long as they may be a byte order mark; None after it.
        self._begin: bytes | None = b""
        self._rest = bytearray()  # not a list of pieces: a command may write one byte at a time

    def add(self, data: bytes) -> bytes:
        """Add bytes; return the lines completed by them."""
        if self._charset is not None:
            data = self._decoded(self._charset, data)
        if self._begin is not None:
            self._begin += data
            if MARK.startswith(self._begin) and self._begin != MARK:
                return b""
            data, self._begin = self._begin.removeprefix(MARK), None
        end = data.rfind(b"\n") + 1
        self._rest += data[:end] if end else data
        if not end and len(self._rest) < self._most:
            return b""
        block, self._rest = bytes(self._rest), bytearray(data[end:] if end else b"")
        return block

    def rest(self) -> bytes:
        """Return the last line, if it has no line end."""
        end = b"" if self._charset is None else self._decoded(self._charset, b"", final=True)
        return b"".join([self._begin or b"", self._rest, end])

    def _decoded(self, charset: str, data: bytes, *, final: bool = False) -> bytes:
        """Convert to UTF-8; without a byte order mark the order is little-endian."""
        if self._decoder is None:
            data = self._head = self._head + data
            if len(data) < _LONGEST_MARK and not final:
                return b""
            self._decoder = codecs.getincrementaldecoder(in_order(charset, data))(errors="replace")
        return self._decoder.decode(data, final=final).encode(errors="replace")


class Command:
    """A running command, and its guard.

    :param name: the command as messages name it.
    :param log_errors: True to log the command's standard error.
    :raises ExecError: the command cannot be run.
    """

    def __init__(self, arguments: Sequence[str], name: str, *, log_errors: bool) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD], stdin=subprocess.PIPE, process_group=0
        )
        try:
            self._process = subprocess.Popen(  # running the user's command is the purpose
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if log_errors else subprocess.DEVNULL,
                process_group=self._guard.pid,
            )
        except (OSError, ValueError, IndexError) as error:
            self._end_guard()
            raise ExecError(f"{name!r} cannot be run: {error}") from error
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        self._output = self._process.stdout
        with suppress(OSError):  # the user's limit of pipe memory
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ)
        self._name, self._errors = name, b""
        self.is_open, self._ended = True, False

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self._end()

    def read(self, timeout: float) -> bytes:
        """Return the command's output; empty if there is none in time.

        :param timeout: seconds.
        """
        found = b""
        for key, _ in self._selector.select(timeout):
            data = os.read(key.fd, _READ_BYTES)
            if key.fileobj is self._output:
                found = data
                self.is_open = bool(data)
            elif data:
                self._log(data)
            else:
                self._selector.unregister(key.fileobj)
        return found

    def wait(self) -> int:
        """Return the exit status as a shell does, after the end.

        A command that closed its output and still runs is ended.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self._end()
        status = int(self._process.returncode)
        return status if status >= 0 else 128 - status

    def _log(self, data: bytes) -> None:
        *lines, self._errors = (self._errors + data).split(b"\n")
        for line in lines:
            _log.warning("stderr of %r: %s", self._name, line.decode(errors="backslashreplace"))
        self._errors = self._errors[-_READ_BYTES:]

    def _log_last_words(self) -> None:
        """Log the rest of the standard error, including a last line without a line end."""
        errors = self._process.stderr
        if errors is None:
            return
        with suppress(BlockingIOError):
            while data := os.read(errors.fileno(), _READ_BYTES):
                self._log(data)
        if self._errors:
            self._log(b"\n")

    def _end(self) -> None:
        """End the group, and close all pipes."""
        self._ended = True
        if self._process.poll() is None:
            os.killpg(self._guard.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
        self._end_guard()
        self._process.wait()
        self._log_last_words()
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _end_guard(self) -> None:
        """Kill the rest of the group, including the guard."""
        with suppress(ProcessLookupError):
            os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
