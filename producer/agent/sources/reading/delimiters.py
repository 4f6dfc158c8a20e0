"""Lines of files that end with another character than a line feed."""

from __future__ import annotations

from collections.abc import Mapping

from ....model.errors import ConfigError
from ....model.options import option
from ...events.batch import EventBatch, Position


def delimiter_option() -> str:
    """Return the declaration of the option ``delimiter``."""
    declared: str = option(
        "\n", doc="end of a line: one ASCII character, such as ; or \\u0000 for a NUL; events then keep line feeds"
    )
    return declared


def check_delimiter(delimiter: str) -> None:
    """Check that a delimiter is one byte in most encodings.

    :raises ConfigError: it is not.
    """
    if len(delimiter) != 1 or not delimiter.isascii():
        raise ConfigError("delimiter", "must be one ASCII character", delimiter)


def batch_of_lines(data: bytes, delimiter: str, headers: Mapping[str, str], position: Position) -> EventBatch:
    """Return the events of whole lines in UTF-8; the last one may have no end."""
    if delimiter == "\n":
        return EventBatch.of_lines(data, headers, position)
    end = delimiter.encode()
    bodies = data.removesuffix(end).split(end) if data else []
    return EventBatch.of_bodies(bodies, headers, position=position)
