"""Select one channel for each batch."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...model.options import option
from ..config.flume_keys import in_small_letters
from ..events.batch import EventBatch
from ..events.interfaces import Context, Routes
from ..flow.channel import BatchChannel


class LoadBalancingSelector:
    """Sends each batch to one channel: in turn, at random, or to the emptiest. Full or failed channels are skipped.

    Flume's ``load_balancing`` ignores the state of channels: there a full channel fails the batch.

    :param channels: the source's channels.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``selector.*``."""

        policy: str = option(
            "round_robin", doc="how a channel is chosen", choices=("round_robin", "random", "least_full")
        )

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            return in_small_letters(texts, "policy")

    exclusive = True

    def __init__(self, options: Options, context: Context, channels: Mapping[str, BatchChannel]) -> None:
        self._policy, self._channels = options.policy, channels
        self._last = -1

    def select(self, batch: EventBatch) -> Routes:
        names = self._in_order()
        chosen = next((name for name in names if self._channels[name].has_room(batch.count)), names[0])
        self._last = list(self._channels).index(chosen)
        return Routes({chosen: batch})

    def _in_order(self) -> Sequence[str]:
        names = list(self._channels)
        if self._policy == "random":
            return random.sample(names, len(names))  # not security-relevant
        if self._policy == "least_full":
            return sorted(names, key=lambda name: self._channels[name].fill)
        first = (self._last + 1) % len(names)
        return names[first:] + names[:first]
