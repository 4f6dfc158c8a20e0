"""The options of sources that read lines from files or objects."""

from __future__ import annotations

from dataclasses import dataclass

from ....model.errors import ConfigError
from ....model.options import option
from ....wire.encodings import is_utf8
from ....wire.log_start import Logs, StartPattern
from .batches import BatchMaker


def delimiter_option() -> str:
    """Declare the option ``delimiter``."""
    declared: str = option(
        "\n", doc="end of a line: one ASCII character, such as ; or \\u0000 for a NUL; events then keep line feeds"
    )
    return declared


def check_text(encoding: str, delimiter: str) -> None:
    """:raises ConfigError: Python lacks the encoding, or the delimiter is not one ASCII character."""
    try:
        is_utf8(encoding)
    except LookupError as error:
        raise ConfigError("encoding", "must be a text encoding that Python supports", encoding) from error
    if len(delimiter) != 1 or not delimiter.isascii():
        raise ConfigError("delimiter", "must be one ASCII character", delimiter)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """Rules that split bytes into events."""

    multiline_start: str | None = option(None, doc="regular expression for the first line of a multi-line event")
    encoding: str = option("utf-8", doc="encoding of the files; others are converted to UTF-8")
    delimiter: str = delimiter_option()
    max_line_bytes: int = option(
        4 << 20,
        least=1024,
        unit="bytes",
        doc="maximum size of an event in bytes; a longer one is split, one below 1 MiB not always",
    )

    def check_lines(self) -> None:
        """:raises ConfigError: a value is invalid, or two exclude each other."""
        check_text(self.encoding, self.delimiter)
        if self.delimiter != "\n" and self.multiline_start is not None:
            raise ConfigError("delimiter", "cannot be used with multiline_start", self.delimiter)
        self.logs()

    def batch_maker(self) -> BatchMaker:
        """Return the converter of blocks into batches."""
        return BatchMaker(self.logs(), delimiter=self.delimiter)

    def logs(self) -> Logs | None:
        """Return the rule by which multi-line events begin; None if each line is an event.

        :raises ConfigError: ``multiline_start`` is not a regular expression.
        """
        if self.multiline_start is None:
            return None
        try:
            return Logs(StartPattern(self.multiline_start), self.max_line_bytes)
        except ValueError as error:
            raise ConfigError("multiline_start", str(error), self.multiline_start) from error
