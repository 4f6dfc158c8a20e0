"""The options of ``spooldir``, with Flume's names."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....model.errors import ConfigError
from ....model.options import option
from ....wire import encodings
from ....wire.patterns import Pattern
from ...config.flume_keys import without_needless

_NOT_NEEDED = "taken from Flume's files and not needed: "
_DESERIALIZER = "deserializer."


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolDirectoryOptions:
    """Flume's ``spooldir``'s, and some more."""

    spool_directory: Path = option(flume="spoolDir", doc="where the files are")
    file_suffix: str = option(".COMPLETED", doc="what the name of a completed file ends with")
    delete_policy: str = option("never", choices=("never", "immediate"), doc="whether a completed file is deleted")
    tracking_policy: str = option(
        "rename",
        choices=("rename", "tracker_dir"),
        doc="how a file is completed: by its name, or a mark elsewhere",
    )
    tracker_directory: str = option(
        ".flumespool", flume="trackerDir", doc="for marks; if it is not absolute, below the spool directory"
    )
    include_pattern: str = option("^.*$", doc="regular expression: only files with such names")
    ignore_pattern: str = option("^$", doc="regular expression: no files with such names")
    consume_order: str = option("oldest", choices=("oldest", "youngest", "random"), doc="which file is the next")
    allow_links_to: tuple[str, ...] = option((), doc="directories below which links may lead, besides this one")
    recursive_directory_search: bool = option(False, doc="whether directories in it are looked into")
    poll_delay: float = option(0.5, scale=0.001, least=0.001, doc="seconds between two looks")
    settle: float = option(5.0, least=0, doc="seconds without a write, after which a file is taken to be complete")
    input_charset: str = option("UTF-8", doc="of the files; another than UTF-8 is converted to it")
    decode_error_policy: str = option(
        "KEEP",
        choices=("KEEP", "REPLACE", "IGNORE", "FAIL"),
        doc="what becomes of bytes that are no text: they stay, become U+FFFD, are left out, or the file is put aside",
    )
    deserializer: str = option("LINE", choices=("LINE", "BLOB"), doc="what an event is: a line, or a whole file")
    max_line_length: int | None = option(None, least=1, doc="characters: longer lines are cut into several events")
    max_blob_length: int = option(
        32 << 20, least=1, unit="bytes", doc="bytes: larger files are cut into several events"
    )
    max_line_bytes: int = option(4 << 20, least=1024, unit="bytes", doc="a longer line comes in parts in any case")
    file_header: bool = option(False, doc="whether events have a header with the path of their file")
    file_header_key: str = option("file", doc="the name of that header")
    basename_header: bool = option(False, doc="whether events have a header with the name of their file")
    basename_header_key: str = option("basename", doc="the name of that header")
    batch_size: int = option(100, least=1, doc=_NOT_NEEDED + "lines travel in blocks of 1 MiB at most")
    max_backoff: float = option(4.0, scale=0.001, doc=_NOT_NEEDED + "a full channel lets in as soon as it has room")

    def missing(self) -> Iterator[ConfigError]:
        """The directory, if it is not there."""
        if not self.spool_directory.is_dir():
            yield ConfigError("spool_directory", "there is no such directory", str(self.spool_directory))

    def __post_init__(self) -> None:
        self.names()
        try:
            encodings.is_utf8(self.input_charset)
        except LookupError as error:
            raise ConfigError("input_charset", "must be one that Python knows", self.input_charset) from error
        if not self.file_suffix:
            raise ConfigError("file_suffix", "must not be empty", self.file_suffix)
        if self.decode_error_policy == "KEEP" and not self.is_utf8:
            object.__setattr__(self, "decode_error_policy", "REPLACE")  # nothing else can be kept in UTF-8

    def names(self) -> tuple[Pattern[str], Pattern[str]]:
        """The patterns of names of files that are read, and of those that are not.

        :raises ConfigError: one is no regular expression.
        """
        return self._pattern("include_pattern"), self._pattern("ignore_pattern")

    def _pattern(self, name: str) -> Pattern[str]:
        text = getattr(self, name)
        try:
            # A name may have line ends.
            return Pattern(text, re.DOTALL, option=name, outcome="the file is not read")
        except ValueError as error:
            raise ConfigError(name, f"must be a regular expression: {error.__cause__}", text) from error

    @property
    def is_utf8(self) -> bool:
        """Whether the bytes of lines stay as they are."""
        return codecs.lookup(self.input_charset).name in ("utf-8", "ascii")

    @property
    def encoding_of_lines(self) -> str:
        """The encoding by whose line ends files are cut: the charset, if these are more than a byte."""
        wide = len(encodings.line_end_of(encodings.in_order(self.input_charset, b""))) > 1
        return self.input_charset if wide and not encodings.is_utf8(self.input_charset) else "utf-8"

    @property
    def marks(self) -> Path:
        """Where the marks of completed files lie."""
        return self.spool_directory / self.tracker_directory

    @staticmethod
    def translate_flume(values: Mapping[str, str]) -> Mapping[str, str]:
        """The keys of the deserializer are ours; its class may be named whole."""
        given = without_needless(values, ("bufferMaxLines", "bufferMaxLineLength"))
        found = {key.removeprefix(_DESERIALIZER): value for key, value in given.items()}
        kind = found.get("deserializer", "LINE").removesuffix("$Builder").rpartition(".")[2]
        if kind in ("LineDeserializer", "BlobDeserializer"):
            found["deserializer"] = kind.removesuffix("Deserializer").upper()
        if found.get("outputCharset", "").upper() in ("UTF-8", "UTF8"):
            del found["outputCharset"]
        return found
