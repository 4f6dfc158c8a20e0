"""A formatter of log lines that foreign text cannot forge.

Messages contain names of files and answers of peers and servers. A record becomes one line, with line ends and terminal
control characters escaped. The lines of a traceback are indented.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TypeAlias

from ..text.printable import shown

#: The format of log lines on the standard error.
FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_Raised: TypeAlias = "tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]"


class LogLines(logging.Formatter):
    """A formatter for people and terminals."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = shown(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _Raised) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"  {shown(line)}" for line in text.split("\n"))
