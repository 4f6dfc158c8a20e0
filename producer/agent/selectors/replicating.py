"""Select all channels for each event."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...model.options import option
from ..config.options import AgentConfigError, Problem, nearest
from ..events.batch import EventBatch
from ..events.interfaces import Context, Routes
from ..flow.channel import BatchChannel


class ReplicatingSelector:
    """Sends every event to all channels. This is the default selector.

    :param channels: the source's channels.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``selector.*``."""

        optional: tuple[str, ...] = option((), doc="channels whose failures do not block the source")

    exclusive = False

    def __init__(self, options: Options, context: Context, channels: Mapping[str, BatchChannel]) -> None:
        self._optional = [name for name in channels if name in options.optional]
        self._required = [name for name in channels if name not in options.optional]

    @staticmethod
    def check(options: Options, where: str, channels: Collection[str]) -> None:
        """Check the options against the source's channels.

        :raises AgentConfigError: if they do not fit.
        """
        problems = [
            Problem(where, "optional", f"the source has no channel {name!r}{nearest(name, channels)}")
            for name in options.optional
            if name not in channels
        ]
        if problems:
            raise AgentConfigError(problems)

    def select(self, batch: EventBatch) -> Routes:
        return Routes(dict.fromkeys(self._required, batch), dict.fromkeys(self._optional, batch))
