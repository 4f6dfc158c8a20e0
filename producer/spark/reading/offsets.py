"""Parse ``startingOffsets`` and ``endingOffsets``, named as in Spark's Kafka source, with cursors for offsets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import TimestampType

from ...model.errors import ConfigError
from ..logstore import LogstoreClient
from .values import parser_of

EARLIEST, LATEST = "earliest", "latest"

_RULE = (
    "must be earliest, latest, Unix seconds, a time such as 2026-01-31T12:00:00Z (without a zone it is UTC), or JSON "
    'that gives each shard a cursor, earliest, latest or Unix seconds, such as {"0": "MTI=", "1": "earliest"}'
)
_time_of = parser_of(TimestampType())
_FROM = {EARLIEST: "begin", LATEST: "end"}


@dataclass(frozen=True, slots=True)
class Cursor:
    """A cursor from an option."""

    text: str


# An argument of GetCursor, or a cursor.
Place = str | int | Cursor


@dataclass(frozen=True, slots=True)
class Offsets:
    """A place in each shard, not resolved to cursors yet.

    :ivar option: the option's name, for error messages.
    :ivar of_all: the place in every shard, or None.
    :ivar of_shard: the place in each shard, if ``of_all`` is None.
    """

    option: str
    of_all: Place | None
    of_shard: Mapping[str, Place]

    def resolve(self, client: LogstoreClient, shards: Sequence[str]) -> dict[str, str]:
        """Return the cursor of each shard.

        :raises ConfigError: a named shard is not read, or a shard that is read is not named.
        :raises LogHubReadError: the server did not return a cursor.
        """
        if self.of_all is None:
            self._check(shards)
        found = {}
        for shard in shards:
            place = self.of_shard[shard] if self.of_all is None else self.of_all
            found[shard] = (
                _known(client, shard, place.text) if isinstance(place, Cursor) else client.cursor(shard, place)
            )
        return found

    def _check(self, shards: Sequence[str]) -> None:
        for shard in self.of_shard:
            if shard not in shards:
                there = ", ".join(shards) or "none"
                raise ConfigError(self.option, f"must name only shards that are read ({there}), each once", shard)
        missing = [shard for shard in shards if shard not in self.of_shard]
        if missing:
            rule = f"must name every shard that is read (see the option shards); missing: {', '.join(missing)}"
            raise ConfigError(self.option, rule, ", ".join(self.of_shard))


def _known(client: LogstoreClient, shard: str, cursor: str) -> str:
    """Return ``cursor`` after the server accepted it: an invalid one must fail here, not in a task."""
    client.pull_columns(shard, cursor, 1)
    return cursor


def parse_offsets(option: str, text: str) -> Offsets:
    """Parse the text of an option.

    :raises ConfigError: the text is invalid.
    """
    text = text.strip()
    if text.startswith("{"):
        return Offsets(option, None, _of_shards(option, text))
    if text.lower() in _FROM:
        return Offsets(option, _FROM[text.lower()], {})
    if text.isascii() and text.isdigit():
        return Offsets(option, _seconds(option, text, int(text)), {})
    try:
        time = _time_of(text)
    except ValueError as error:
        raise ConfigError(option, _RULE, text) from error
    # Times of receipt are whole seconds: a LogGroup received in this second is not before the time.
    return Offsets(option, _seconds(option, text, math.floor(time.timestamp())), {})


def seconds_of(option: str, text: str) -> int:
    """Parse an option into Unix seconds.

    :raises ConfigError: the text is neither Unix seconds nor a time.
    """
    try:
        number = text.strip()
        time = int(number) if number.isascii() and number.isdigit() else math.floor(_time_of(number).timestamp())
    except ValueError:
        time = 0
    if not 0 < time < 1 << 32:
        raise ConfigError(option, "must be Unix seconds, or a time such as 2026-01-31T12:00:00Z", text)
    return time


def _of_shards(option: str, text: str) -> dict[str, Place]:
    try:
        given: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ConfigError(option, f"{_RULE}; this is not valid JSON ({error})", text) from error
    if not all(shard.isascii() and shard.isdigit() for shard in given):
        raise ConfigError(option, _RULE, text)
    return {str(int(shard)): _place(option, text, value) for shard, value in given.items()}


def _place(option: str, text: str, value: Any) -> Place:
    if type(value) is int:
        return _seconds(option, text, value)
    if isinstance(value, str) and value.strip():
        return _FROM.get(value.strip().lower(), Cursor(value.strip()))
    raise ConfigError(option, _RULE, text)


def _seconds(option: str, text: str, seconds: int) -> int:
    # GetCursor accepts 32 bits.
    if not 0 < seconds < 1 << 32:
        raise ConfigError(option, _RULE, text)
    return seconds
