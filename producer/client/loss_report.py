"""LossReport: how many logs of a producer are lost, by reason, in the log once more at its end."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.metrics import DROPPED, FAILED_BY_CODE, Counters
from ..runtime.loggers import get_logger
from ..text.plural import counted

_log = get_logger("loghub.losses")


class LossReport:
    """Logs that failed or were dropped: while they do, one line in many is written, and these sums at the end.

    :param name: the producer's name.
    :param muted: True if the owner accounts for every log itself, as the agent, ``ship`` and the commands do.
    """

    def __init__(self, name: str, counters: Counters, *, muted: bool = False) -> None:
        self._name, self._counters, self.muted = name, counters, muted
        self._said = 0

    def mute(self) -> None:
        """Report nothing: the owner accounts for every log itself."""
        self.muted = True

    def say(self) -> None:
        """Log the sums, unless there are none, or they are those of the last time."""
        failed, dropped = self._counters.under(FAILED_BY_CODE), self._counters.under(DROPPED)
        lost = sum(failed.values()) + sum(dropped.values())
        if self.muted or lost == self._said:
            return
        self._said = lost
        parts = [
            f"{counted(sum(sums.values()), 'log', form=',')} {what} ({_by_reason(sums)})"
            for what, sums in (("failed", failed), ("dropped by integrations", dropped))
            if sums
        ]
        _log.warning("%s: in all %s", self._name, " and ".join(parts))


def _by_reason(sums: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {logs:,}" for reason, logs in sums.items())
