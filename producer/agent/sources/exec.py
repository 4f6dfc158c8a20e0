"""The lines that a command writes. Source: Flume's ``ExecSource``.

How the command runs, and ends with the source, is told in :mod:`.commands`.

A channel that is full, or an interceptor that fails, holds the command back, since its pipe is not read meanwhile;
nothing is dropped. What the command had written, and no channel had committed, when this process died is lost: a
command cannot be asked again.
"""

from __future__ import annotations

import codecs
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Stop
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet
from .commands import GATHER, LOOK, SMALL, Command, ExecError, Lines
from .intake import Intake

_log = get_logger("loghub.agent.exec")


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
        self._options, self._context, self._intake = options, context, Intake(context)
        self._repeated = RateLimitedLog(context.clock)

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
        more = self._repeated.due_error(ExecError(message))
        if more is not None:
            _log.error("source %s: %s%s", self._context.name, message, more)

    def _run_once(self, outlet: Outlet, stop: Stop) -> int:
        """Run the command to its end, or to ``stop``; its exit status."""
        options = self._options
        shell = shlex.split(options.shell) if options.shell else []
        arguments = [*shell, options.command] if shell else shlex.split(options.command)
        lines = Lines(options.max_line_bytes, options.charset)
        with Command(arguments, options.command, log_errors=options.log_std_err) as command:
            while command.is_open and not stop.is_set():
                data = command.read(LOOK)
                if data and not self._put(outlet, stop, lines.add(data)):
                    return 0
                if 0 < len(data) < SMALL:
                    stop.wait(GATHER)
            if stop.is_set():
                return 0
            status = command.wait()
        self._put(outlet, stop, lines.rest())
        return status

    def _put(self, outlet: Outlet, stop: Stop, block: bytes) -> bool:
        return not block or self._intake.put_until(outlet, EventBatch.of_lines(block), stop)
