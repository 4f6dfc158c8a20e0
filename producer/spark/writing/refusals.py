"""Handle the rows that LogHub refuses: fail the task, store them as dead letters, or drop them.

LogHub refuses whole requests; :mod:`.at_least_once` and :mod:`.exactly_once` find the rows at fault.
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

# The row's number in an error of ``send_arrow``.
_ROW = re.compile(r"^row \d+: ")
#: The errors of rows that cannot become logs. Arrow raises some of them for invalid values.
UNSENDABLE = (InvalidArgumentError, UnicodeError, OverflowError, ArrowException)
#: The limit of refused rows that a task logs; more are only counted.
_MOST_LOGGED = 5


def reason_of_error(error: Exception) -> Reason:
    """Return the reason why a row cannot become a log, without the row's number."""
    return Reason(type(error).__name__, _ROW.sub("", str(error)))


def blames_row(error: Exception) -> bool:
    """Return True if a row is at fault, False if an option or a column is."""
    if isinstance(error, LogSizeTooLargeError):
        return error.limit >= MAX_BATCH_SIZE_IN_BYTES
    return not isinstance(error, InvalidArgumentError) or bool(_ROW.match(str(error)))


def full_reason(error: Exception) -> str:
    """Return the words of an error that is not about rows."""
    return f"{type(error).__name__}: {error}"


class Refusals:
    """The handler of one task's refused rows.

    :param on_failure: the handling of refused rows.
    :param letters: the file for ``deadletter``; None for other handling.
    :param metrics: the counts of the task.
    :param target: the target, for messages.
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
        self._logged = 0

    def refuse(self, rows: Rows, reason: Reason) -> None:
        """Handle refused rows.

        :raises DeliveryFailedError: ``onFailure`` is ``fail``, or the dead letters cannot be written.
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
        self._warn(where, reason)

    def _warn(self, where: str, reason: Reason) -> None:
        self._logged += 1
        if self._logged <= _MOST_LOGGED:
            outcome = "dropped" if self._letters is None else "stored as a dead letter"
            _log.warning("%s, refused by %s and %s: %s", where, self._target, outcome, reason)
