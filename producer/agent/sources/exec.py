"""Lines that a command writes. Modelled on Flume's ``ExecSource``.

:mod:`.commands` runs the command, and ends it with the source.

A full channel or a failing interceptor stops the reading of the pipe, so the command waits and nothing is dropped.
Output that no channel had committed is lost if this process dies: a command cannot be read again.
"""

from __future__ import annotations

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
from .reading.line_options import check_text

_log = get_logger("loghub.agent.exec")


class ExecSource:
    """Source of the lines that a command writes. Modelled on Flume's ``ExecSource``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``exec``."""

        command: str = option(doc="command to run; split like a shell does, unless shell is given")
        shell: str | None = option(None, doc='shell that runs the command, such as "/bin/bash -c"')
        restart: bool = option(False, doc="run the command again when it ends")
        restart_throttle: float = option(10.0, scale=0.001, least=0, doc="seconds until it is run again")
        log_std_err: bool = option(False, doc="log the command's standard error")
        batch_size: int = option(
            20, least=1, doc="accepted from Flume's files, without effect: all output of one read is a batch"
        )
        batch_timeout: float = option(
            3.0, scale=0.001, least=0, doc="accepted from Flume's files, without effect, for the same reason"
        )
        encoding: str = option("utf-8", flume="charset", doc="encoding of the output; others are converted to UTF-8")
        max_line_bytes: int = option(
            4 << 20, least=1024, unit="bytes", doc="bytes of a line; a longer one is split, 1 MiB later at the latest"
        )

        def __post_init__(self) -> None:
            check_text(self.encoding, "\n")
            try:
                shlex.split(self.shell or self.command)
            except ValueError as error:
                raise ConfigError("command", f"must be quoted as for a shell: {error}", self.command) from error

        def missing(self) -> Iterator[ConfigError]:
            """Yield an error if the program does not exist."""
            name = "shell" if self.shell else "command"
            program = next(iter(shlex.split(self.shell or self.command)), "")
            if shutil.which(program) is None:
                yield ConfigError(name, "there is no such program", program)

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context, self._intake = options, context, Intake(context)
        self._repeated = RateLimitedLog(context.clock)

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """Run until the command ends, unless it is to be restarted.

        :raises ExecError: the command cannot be run.
        """
        options = self._options
        while not stop.is_set():
            status = self._run_once(outlet, stop)
            if stop.is_set():
                return
            message = f"{options.command!r} ended with the exit status {status}"
            if status:
                self._log_failure(message)
            else:
                _log.info("source %s: %s", self._context.name, message)
            if not options.restart:
                return
            stop.wait(options.restart_throttle)

    def _log_failure(self, message: str) -> None:
        self._context.counters.last_error = message
        more = self._repeated.due_error(ExecError(message))
        if more is not None:
            _log.error("source %s: %s%s", self._context.name, message, more)

    def _run_once(self, outlet: Outlet, stop: Stop) -> int:
        """Run the command to its end, or until ``stop``; return its exit status."""
        options = self._options
        shell = shlex.split(options.shell) if options.shell else []
        arguments = [*shell, options.command] if shell else shlex.split(options.command)
        lines = Lines(options.max_line_bytes, options.encoding)
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
