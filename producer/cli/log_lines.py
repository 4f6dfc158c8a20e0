"""LogLines: records of the log as lines that no foreign text can forge.

A file's name, a peer's words and a server's answer stand in messages. A record is one line, in which line ends and
what a terminal obeys are shown with backslashes; the lines of a traceback are indented.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TypeAlias

from ..text.printable import shown

#: Of a log on the standard error.
FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_Raised: TypeAlias = "tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]"


class LogLines(logging.Formatter):
    """Formats records for people and terminals."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See :meth:`logging.Formatter.formatMessage`, as for those that follow."""
        record.message = shown(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _Raised) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"  {shown(line)}" for line in text.split("\n"))
