"""The lines that a command writes. Source: Flume's ``ExecSource``.

The command reads nothing, and runs in a process group of its own, which is ended with the source: SIGTERM, and SIGKILL
to what is left after some seconds. If this process dies instead, even by ``kill -9``, a guard ends the group: a small
process, its leader, that sleeps at the end of a pipe of which only we have the other end, and wakes when we are gone.
What the command starts in a group or session of its own is out of reach.

A channel that is full holds the command back, since its pipe is not read meanwhile; nothing is dropped. What the
command had written, and no channel had committed, when this process died is lost: a command cannot be asked again.
"""

from __future__ import annotations

import codecs
import fcntl
import logging
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ...errors import ConfigError, ProducerError
from ..batch import EventBatch
from ..interfaces import Context, Outlet, Stop
from ..options import option
from ..repeated import RepeatedLog

_log = logging.getLogger("producer.agent.exec")

_READ_BYTES = 1 << 20
#: Seconds between two looks whether to end.
_LOOK = 0.2
#: After less than so many bytes the pipe gathers more for so many seconds: a commit for each line would cost too much.
_SMALL, _GATHER = 64 << 10, 0.01
#: Seconds that a command has to end in, once it was told to.
_GRACE = 2.0

_GUARD = "import os,signal;signal.signal(15,signal.SIG_IGN);os.read(0,1);os.killpg(0,9)"
_PIPE_BYTES = 1 << 20


class ExecError(ProducerError):
    """The command cannot be run."""


class ExecSource:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``exec``'s."""

        command: str = option(doc="what to run; split as a shell would, unless there is a shell")
        shell: str | None = option(None, doc='runs the command, such as "/bin/bash -c"; none by default')
        restart: bool = option(False, doc="whether the command is run again when it ends")
        restart_throttle: float = option(10.0, scale=0.001, least=0, doc="seconds before it is run again")
        log_std_err: bool = option(False, doc="whether what it writes to its standard error is logged")
        batch_size: int = option(
            20, least=1, doc="taken from Flume's files and not needed: what has been written travels at once"
        )
        batch_timeout: float = option(
            3.0, scale=0.001, least=0, doc="taken from Flume's files and not needed, for the same reason"
        )
        charset: str = option("UTF-8", doc="of the output; another than UTF-8 is converted to it")
        max_line_bytes: int = option(4 << 20, least=1024, unit="bytes", doc="a longer line comes in parts")

        def __post_init__(self) -> None:
            try:
                codecs.lookup(self.charset)
                shlex.split(self.shell or self.command)
            except LookupError as error:
                raise ConfigError("charset", "must be one that Python knows", self.charset) from error
            except ValueError as error:
                raise ConfigError("command", f"must be quoted as for a shell: {error}", self.command) from error

        def missing(self) -> Iterator[ConfigError]:
            """A program that is not there."""
            name = "shell" if self.shell else "command"
            program = next(iter(shlex.split(self.shell or self.command)), "")
            if shutil.which(program) is None:
                yield ConfigError(name, "there is no such program", program)

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context
        self._repeated = RepeatedLog(context.clock)

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`; returns when the command has ended, unless it is to be run again.

        :raises ExecError: it cannot be run.
        """
        options = self._options
        while not stop.is_set():
            status = self._run_once(outlet, stop)
            if stop.is_set():
                return
            message = f"{options.command!r} ended with the exit status {status}"
            if status:
                self._tell(message)
            else:
                _log.info("source %s: %s", self._context.name, message)
            if not options.restart:
                return
            stop.wait(options.restart_throttle)

    def _tell(self, message: str) -> None:
        self._context.counters.last_error = message
        more = self._repeated.due(ExecError(message))
        if more is not None:
            _log.error("source %s: %s%s", self._context.name, message, more)

    def _run_once(self, outlet: Outlet, stop: Stop) -> int:
        """Run the command to its end, or to ``stop``; its exit status."""
        lines = _Lines(self._options)
        with _Command(self._options) as command:
            while command.is_open and not stop.is_set():
                data = command.read(_LOOK)
                if data and not self._put(outlet, stop, lines.add(data)):
                    return 0
                if 0 < len(data) < _SMALL:
                    stop.wait(_GATHER)
            if stop.is_set():
                return 0
            status = command.wait()
        self._put(outlet, stop, lines.rest())
        return status

    def _put(self, outlet: Outlet, stop: Stop, block: bytes) -> bool:
        return not block or outlet.put_until(EventBatch.of_lines(block), stop)


class _Lines:
    """Cuts what comes into whole lines."""

    def __init__(self, options: ExecSource.Options) -> None:
        self._most = options.max_line_bytes
        utf8 = codecs.lookup(options.charset).name in ("utf-8", "ascii")
        self._decoder = None if utf8 else codecs.getincrementaldecoder(options.charset)(errors="replace")
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> bytes:
        """The lines that are whole with these bytes; empty if none is."""
        if self._decoder is not None:
            data = self._decoder.decode(data).encode()
        end = data.rfind(b"\n") + 1
        self._parts.append(data[:end] if end else data)
        self._size += len(self._parts[-1])
        if not end and self._size < self._most:
            return b""
        block = b"".join(self._parts)
        self._parts = [data[end:]] if end else []
        self._size = sum(map(len, self._parts))
        return block

    def rest(self) -> bytes:
        """The last line, if it has no end."""
        end = b"" if self._decoder is None else self._decoder.decode(b"", final=True).encode()
        return b"".join([*self._parts, end])


class _Command:
    """A running command, and its guard.

    :raises ExecError: it cannot be run.
    """

    def __init__(self, options: ExecSource.Options) -> None:
        shell = shlex.split(options.shell) if options.shell else []
        arguments = [*shell, options.command] if shell else shlex.split(options.command)
        self._guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", "-c", _GUARD], stdin=subprocess.PIPE, process_group=0
        )
        try:
            self._process = subprocess.Popen(  # noqa: S603  # that is what the source is for
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if options.log_std_err else subprocess.DEVNULL,
                process_group=self._guard.pid,
            )
        except (OSError, ValueError, IndexError) as error:
            self._end_guard()
            raise ExecError(f"{options.command!r} cannot be run: {error}") from error
        assert self._process.stdout is not None  # noqa: S101  # it was asked for
        self._output = self._process.stdout
        with suppress(OSError):  # more of a pipe than a user may have
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ)
        self._errors = b""
        self.is_open, self._ended = True, False

    def __enter__(self) -> _Command:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self._end()

    def read(self, timeout: float) -> bytes:
        """What it has written; empty if nothing came in time.

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
        """Its exit status, once it has ended; as a shell gives it.

        A command that closed its output and goes on has nothing more to say, and is ended.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self._end()
        status = int(self._process.returncode)
        return status if status >= 0 else 128 - status

    def _log(self, data: bytes) -> None:
        *lines, self._errors = (self._errors + data).split(b"\n")
        for line in lines:
            _log.warning("stderr of %s: %s", self._process.args, line.decode(errors="backslashreplace"))
        self._errors = self._errors[-_READ_BYTES:]

    def _end(self) -> None:
        """End its group, and let go of all."""
        self._ended = True
        if self._process.poll() is None:
            os.killpg(self._guard.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
        self._end_guard()
        self._process.wait()
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _end_guard(self) -> None:
        """End what is left of the group, the guard with it."""
        with suppress(ProcessLookupError):
            os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
