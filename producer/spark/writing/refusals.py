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
from .options import WriteOptions
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
    """The handler of one task's rows that are refused or not acknowledged.

    :param options: the options of the write.
    :param letters: the file for ``deadletter``; None for other handling.
    :param partition: the task's partition, for messages.
    :ivar metrics: the counts of the task.
    """

    def __init__(self, options: WriteOptions, letters: DeadLetterFile | None, partition: int) -> None:
        self._fails, self._target = options.on_failure == "fail", options.target
        self._letters = letters
        self._partition = partition
        self.metrics = WriteMetrics(tasks=1)
        self._logged = 0

    def not_acknowledged(self, rows: Rows, reason: str, more: str = "") -> DeliveryFailedError:
        """Return the error of rows that were not acknowledged.

        :param more: text to append.
        """
        verb = "was" if len(rows) == 1 else "were"
        return DeliveryFailedError(
            f"{rows} of partition {self._partition} for {self._target} {verb} not acknowledged: "
            f"{' '.join(reason.split())}. {self._acknowledged()}{more}"
        )

    def _acknowledged(self) -> str:
        return f"Acknowledged by this task before: {counted(self.metrics.rows, 'row')}"

    def refuse(self, rows: Rows, reason: Reason) -> None:
        """Handle refused rows.

        :raises DeliveryFailedError: ``onFailure`` is ``fail``, or the dead letters cannot be written.
        """
        where = f"{rows} of partition {self._partition}"
        if self._fails:
            raise DeliveryFailedError(
                f"{where}, refused by {self._target}: {reason}. Fix it, or write with onFailure=deadletter or drop. "
                f"{self._acknowledged()}"
            )
        if self._letters is None:
            self.metrics.dropped += len(rows)
        else:
            self._letters.add(rows, reason)
            self.metrics.dead_lettered += len(rows)
        self._warn(where, reason)

    def _warn(self, where: str, reason: Reason) -> None:
        self._logged += 1
        if self._logged <= _MOST_LOGGED:
            outcome = "dropped" if self._letters is None else "stored as a dead letter"
            _log.warning("%s, refused by %s and %s: %s", where, self._target, outcome, reason)
