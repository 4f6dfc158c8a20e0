"""LossReport: logs the number of lost logs of a producer, by reason, at its end."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.metrics import DROPPED, FAILED_BY_CODE, Counters
from ..runtime.loggers import get_logger
from ..text.plural import counted

_log = get_logger("loghub.losses")


class LossReport:
    """Writes the sums of failed and dropped logs, whose own log lines are rate-limited.

    :param name: the producer's name.
    :param muted: True if the owner reports every log itself, as the agent, ``ship`` and the commands do.
    """

    def __init__(self, name: str, counters: Counters, *, muted: bool = False) -> None:
        self._name, self._counters, self.muted = name, counters, muted
        self._reported = 0

    def mute(self) -> None:
        """Report nothing: the owner reports every log itself."""
        self.muted = True

    def write(self) -> None:
        """Log the sums, unless they are 0 or were already logged."""
        failed, dropped = self._counters.under(FAILED_BY_CODE), self._counters.under(DROPPED)
        lost = sum(failed.values()) + sum(dropped.values())
        if self.muted or lost == self._reported:
            return
        self._reported = lost
        parts = [
            f"{counted(sum(sums.values()), 'log', form=',')} {what} ({_by_reason(sums)})"
            for what, sums in (("failed", failed), ("dropped by integrations", dropped))
            if sums
        ]
        _log.warning("%s: in all %s", self._name, " and ".join(parts))


def _by_reason(sums: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {logs:,}" for reason, logs in sums.items())
