"""By the value of a header.

An event whose value stands in no mapping, is blank or missing goes to the default channels; without any, it goes
nowhere, and is counted. Source: Flume's ``MultiplexingChannelSelector``.
"""

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
    """See the module.

    :param channels: the source's.
    :raises AgentConfigError: a channel that is not the source's, or a value without channels.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``selector.*``."""

        header: str = option("flume.selector.header", doc="the header whose value chooses")
        mapping: Mapping[str, tuple[str, ...]] = option({}, doc="the channels of each value")
        default: tuple[str, ...] = option((), doc="the channels of all other events")
        optional: Mapping[str, tuple[str, ...]] = option(
            {}, doc="further channels of each value, whose failures do not hold the source up"
        )

    exclusive = False

    def __init__(self, options: Options, context: Context, channels: Mapping[str, BatchChannel]) -> None:
        self._options = options
        self.check(options, f"sources.{context.name}.selector", channels)

    def select(self, batch: EventBatch) -> Routes:
        """See :class:`~..interfaces.Selector`."""
        values = batch.values(self._options.header)
        required, optional = self._destinations(values)
        chosen = set().union(*required.values(), *optional.values())
        dropped = batch.count if not chosen else sum(value not in chosen for value in values)
        return Routes(_parts(batch, values, required), _parts(batch, values, optional), dropped)

    def _destinations(self, values: Sequence[str | None]) -> tuple[_Destinations, _Destinations]:
        """For each channel the values whose events it gets."""
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
        """Whether the options fit the source's channels.

        :raises AgentConfigError: they do not.
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
            Problem(where, key, "names no channel") for key, names in lists.items() if not names and key != "default"
        ]
        if not any(lists.values()):
            message = "has no mapping, optional or default: no event would reach a channel"
            problems.append(Problem(where, "", message))
        if problems:
            raise AgentConfigError(problems)

    @staticmethod
    def notes(options: Options, given: Collection[str]) -> list[str]:
        """What whoever starts it should know.

        :param given: the options that are set.
        """
        if "default" in given:
            return []
        text = "has no default: events with another {!r} go to no channel, and are counted (EventDroppedCount);"
        return [f'{text.format(options.header)} "default = []" says that this is wanted']


_Destinations = dict[str, set[str | None]]


def _parts(batch: EventBatch, values: Sequence[str | None], destinations: _Destinations) -> dict[str, EventBatch]:
    parts = {}
    for channel, wanted in destinations.items():
        whole = all(value in wanted for value in set(values))
        parts[channel] = batch if whole else batch.select([value in wanted for value in values])
    return parts
