"""The exit codes of every command, in one table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    HUNG_UP = 129
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


#: The table in the documents.
MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "the command ran, and failed at least in part: an event was not delivered, not found or refused",
    ExitCode.USAGE: "an argument or the configuration is invalid, or an extra is missing; nothing was started",
    ExitCode.HUNG_UP: "its terminal was closed (SIGHUP)",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C (SIGINT)",
    ExitCode.BROKEN_PIPE: "the reader of the output has ended, as `head` does",
    ExitCode.TERMINATED: "ended by SIGTERM",
}
