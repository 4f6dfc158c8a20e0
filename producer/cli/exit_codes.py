"""The exit codes of every command, in one table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended; what each means for users stands in ``docs/cli/index.md``."""

    OK = 0
    FAILED = 1
    USAGE = 2
    HUNG_UP = 129
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


#: What the table in the documents says.
MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "all is done",
    ExitCode.FAILED: "it was tried, and not all of it could be done: something was not delivered, not found or refused",
    ExitCode.USAGE: "it cannot be done as asked: an argument, the configuration or an extra; nothing has begun",
    ExitCode.HUNG_UP: "its terminal was closed (SIGHUP)",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C (SIGINT)",
    ExitCode.BROKEN_PIPE: "the reader of the output has ended, as `head` does",
    ExitCode.TERMINATED: "ended by SIGTERM",
}
