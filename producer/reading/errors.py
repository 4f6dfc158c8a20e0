"""What is raised when LogHub does not answer what it was asked."""

from __future__ import annotations

from ..model.errors import ProducerError
from ..text.printable import readable


class LogHubReadError(ProducerError):
    """LogHub did not hand out what was asked for.

    :param message: may hold whatever a server said.
    """

    def __init__(self, message: str) -> None:
        super().__init__(readable(message))

    @property
    def code(self) -> str:
        """The code of the last answer, such as ``ShardNotExist``; empty if there was none."""
        return str(getattr(self.__cause__, "code", ""))


class AnswerTooLargeError(LogHubReadError):
    """An answer has more bytes than its reader takes at a time."""
