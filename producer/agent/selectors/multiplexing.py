"""Select channels by the value of a header."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...model.options import option
from ..config.options import AgentConfigError, Problem, nearest
from ..events.batch import EventBatch
from ..events.interfaces import Context, Routes
from ..flow.channel import BatchChannel


class MultiplexingSelector:
    """Sends each event to the channels that are mapped to its value of a header.

    Events with another value, a blank one or none go to the default channels. Without any, they are dropped and
    counted. Adapted from Flume's ``MultiplexingChannelSelector``.

    :param channels: the source's channels.
    :raises AgentConfigError: if a channel is not the source's, or a value has no channels.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``selector.*``."""

        header: str = option("flume.selector.header", doc="the header whose value chooses")
        mapping: Mapping[str, tuple[str, ...]] = option({}, doc="the channels of each value")
        default: tuple[str, ...] = option((), doc="the channels of all other events")
        optional: Mapping[str, tuple[str, ...]] = option(
            {}, doc="further channels of each value, whose failures do not block the source"
        )

    exclusive = False

    def __init__(self, options: Options, context: Context, channels: Mapping[str, BatchChannel]) -> None:
        self._options = options
        self.check(options, f"sources.{context.name}.selector", channels)

    def select(self, batch: EventBatch) -> Routes:
        values = batch.values(self._options.header)
        required, optional = self._destinations(values)
        chosen = set().union(*required.values(), *optional.values())
        dropped = batch.count if not chosen else sum(value not in chosen for value in values)
        return Routes(_parts(batch, values, required), _parts(batch, values, optional), dropped)

    def _destinations(self, values: Sequence[str | None]) -> tuple[_Destinations, _Destinations]:
        """Return the values whose events each channel gets."""
        options = self._options
        required: _Destinations = defaultdict(set)
        optional: _Destinations = defaultdict(set)
        for value in dict.fromkeys(values):
            key = value if value is not None and value.strip() else ""
            wanted = options.mapping.get(key) or options.default
            for channel in wanted:
                required[channel].add(value)
            for channel in options.optional.get(key, ()):
                if channel not in wanted:
                    optional[channel].add(value)
        return required, optional

    @staticmethod
    def check(options: Options, where: str, channels: Collection[str]) -> None:
        """Check the options against the source's channels.

        :raises AgentConfigError: if they do not fit.
        """
        lists = {f"mapping.{value}": names for value, names in options.mapping.items()}
        lists |= {f"optional.{value}": names for value, names in options.optional.items()}
        lists["default"] = options.default
        problems = [
            Problem(where, key, f"the source has no channel {name!r}{nearest(name, channels)}")
            for key, names in lists.items()
            for name in names
            if name not in channels
        ]
        problems += [
            Problem(where, key, "must name at least one channel")
            for key, names in lists.items()
            if not names and key != "default"
        ]
        if not any(lists.values()):
            message = "has no mapping, optional or default: no event would reach a channel"
            problems.append(Problem(where, "", message))
        if problems:
            raise AgentConfigError(problems)

    @staticmethod
    def notes(options: Options, given: Collection[str]) -> list[str]:
        """Return hints for the operator.

        :param given: the options that are set.
        """
        if "default" in given:
            return []
        text = "has no default: events with another {!r} are dropped, and counted (EventDroppedCount);"
        return [f'{text.format(options.header)} set "default = []" if this is intended']


_Destinations = dict[str, set[str | None]]


def _parts(batch: EventBatch, values: Sequence[str | None], destinations: _Destinations) -> dict[str, EventBatch]:
    parts = {}
    for channel, wanted in destinations.items():
        whole = all(value in wanted for value in set(values))
        parts[channel] = batch if whole else batch.select([value in wanted for value in values])
    return parts
