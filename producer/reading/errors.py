"""Errors of reads from LogHub."""

from __future__ import annotations

from ..model.errors import ProducerError
from ..text.printable import readable


class LogHubReadError(ProducerError):
    """Raised when LogHub does not answer a request as required.

    :param message: the message; may contain any text of a server.
    """

    def __init__(self, message: str) -> None:
        super().__init__(readable(message))

    @property
    def code(self) -> str:
        """Return the code of the last answer, such as ``ShardNotExist``; empty if there was none."""
        return str(getattr(self.__cause__, "code", ""))


class AnswerTooLargeError(LogHubReadError):
    """Raised when an answer is larger than its reader accepts."""
