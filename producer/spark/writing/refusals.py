"""What becomes of rows that LogHub refuses: the task fails, or they go to the dead letters, or they are dropped.

A refusal concerns a whole request; which of its rows are at fault, :mod:`.at_least_once` and :mod:`.exactly_once` have
found out before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyarrow import ArrowException

from ...model.config import MAX_BATCH_SIZE_IN_BYTES
from ...model.errors import InvalidArgumentError, LogSizeTooLargeError
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..errors import DeliveryFailedError
from ..failure_reason import Reason
from .metrics import WriteMetrics
from .options import OnFailure
from .rows import Rows

if TYPE_CHECKING:
    from .dead_letter_files import DeadLetterFile

_log = get_logger("loghub.spark.write")

# How an error of ``send_arrow`` names the row in its batch.
_ROW = re.compile(r"^row \d+: ")
#: What is raised for rows that cannot become logs; some of it by Arrow, of values that no row should have.
UNSENDABLE = (InvalidArgumentError, UnicodeError, OverflowError, ArrowException)
#: Refused rows that are told in the log of a task; more are only counted.
_TOLD = 5


def reason_of_error(error: Exception) -> Reason:
    """The reason why a row cannot become a log at all; its number in the partition is told elsewhere."""
    return Reason(type(error).__name__, _ROW.sub("", str(error)))


def blames_row(error: Exception) -> bool:
    """Whether rows could not be sent for what one of them is, rather than for an option or a column."""
    if isinstance(error, LogSizeTooLargeError):
        return error.limit >= MAX_BATCH_SIZE_IN_BYTES
    return not isinstance(error, InvalidArgumentError) or bool(_ROW.match(str(error)))


def full_reason(error: Exception) -> str:
    """An error that is not about rows, in words."""
    return f"{type(error).__name__}: {error}"


class Refusals:
    """The refused rows of one task.

    :param on_failure: what becomes of them.
    :param letters: where they go, for ``deadletter``.
    :param metrics: counts them.
    :param target: where to, for messages.
    :param partition: the task's partition, for messages.
    """

    def __init__(
        self,
        on_failure: OnFailure,
        letters: DeadLetterFile | None,
        metrics: WriteMetrics,
        target: object,
        partition: int,
    ) -> None:
        self.on_failure = on_failure
        self._letters = letters
        self._metrics = metrics
        self._target = target
        self._partition = partition
        self._told = 0

    def refuse(self, rows: Rows, reason: Reason) -> None:
        """These rows are refused.

        :raises DeliveryFailedError: with ``onFailure=fail``.
        """
        where = f"{rows} of partition {self._partition}"
        if self.on_failure is OnFailure.FAIL:
            raise DeliveryFailedError(
                f"{where}, refused by {self._target}: {reason}. Fix it, or write with onFailure=deadletter or drop. "
                f"Acknowledged by this task before: {counted(self._metrics.rows, 'row')}"
            )
        if self._letters is None:
            self._metrics.dropped += len(rows)
        else:
            self._letters.add(rows, reason)
            self._metrics.dead_lettered += len(rows)
        self._tell(where, reason)

    def _tell(self, where: str, reason: Reason) -> None:
        self._told += 1
        if self._told <= _TOLD:
            fate = "dropped" if self._letters is None else "kept as a dead letter"
            _log.warning("%s, refused by %s and %s: %s", where, self._target, fate, reason)
