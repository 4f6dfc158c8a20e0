"""The options of ``spooldir``, with Flume's names."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....model.errors import ConfigError
from ....model.options import option
from ...config.flume_keys import without_needless
from ..reading.line_options import check_text, delimiter_option
from ..reading.name_filter import NameFilter

_NOT_NEEDED = "accepted from Flume's files, without effect: "
_DESERIALIZER = "deserializer."


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolDirectoryOptions:
    """Options of the ``spooldir`` source: Flume's, and more."""

    spool_directory: Path = option(flume="spoolDir", doc="directory to read files from")
    file_suffix: str = option(".COMPLETED", doc="suffix of a completed file")
    delete_policy: str = option("never", choices=("never", "immediate"), doc="immediate: delete a completed file")
    tracking_policy: str = option(
        "rename",
        choices=("rename", "tracker_dir"),
        doc="rename completed files, or mark them in tracker_directory",
    )
    tracker_directory: str = option(
        ".flumespool", flume="trackerDir", doc="directory for marks, relative to the spool directory"
    )
    include_pattern: str = option("^.*$", doc="regular expression for names of files to read")
    ignore_pattern: str = option("^$", doc="regular expression for names of files not to read")
    consume_order: str = option("oldest", choices=("oldest", "youngest", "random"), doc="which file is read next")
    allow_links_to: tuple[str, ...] = option((), doc="directories that links may lead to, besides this one")
    recursive_directory_search: bool = option(False, doc="read subdirectories, too")
    poll_delay: float = option(0.5, scale=0.001, least=0.001, doc="seconds between two scans")
    settle: float = option(5.0, least=0, doc="seconds without a write after which a file is complete")
    encoding: str = option("utf-8", flume="inputCharset", doc="encoding of the files; others are converted to UTF-8")
    decode_error_policy: str = option(
        "KEEP",
        choices=("KEEP", "REPLACE", "IGNORE", "FAIL"),
        doc="undecodable bytes: keep them, replace them by U+FFFD, drop them, or put the file aside",
    )
    deserializer: str = option("LINE", choices=("LINE", "BLOB"), doc="an event is a line, or a whole file")
    delimiter: str = delimiter_option()
    max_line_length: int | None = option(None, least=1, doc="maximum characters of an event; longer lines are split")
    max_blob_length: int = option(
        32 << 20, least=1, unit="bytes", doc="maximum size of a BLOB event in bytes; larger files are split"
    )
    max_line_bytes: int = option(
        4 << 20, least=1024, unit="bytes", doc="bytes of a line; longer ones are split, those below 1 MiB not always"
    )
    file_header: bool = option(False, doc="add a header with the file's path")
    file_header_key: str = option("file", doc="name of the header for the path")
    basename_header: bool = option(False, doc="add a header with the file's name")
    basename_header_key: str = option("basename", doc="name of the header for the file's name")
    batch_size: int = option(100, least=1, doc=_NOT_NEEDED + "lines are read in blocks of at most 1 MiB")
    max_backoff: float = option(4.0, scale=0.001, doc=_NOT_NEEDED + "a put waits until the channel has room")

    def missing(self) -> Iterator[ConfigError]:
        """Yield an error if the directory does not exist."""
        if not self.spool_directory.is_dir():
            yield ConfigError("spool_directory", "there is no such directory", str(self.spool_directory))

    def __post_init__(self) -> None:
        self.names()
        check_text(self.encoding, self.delimiter)
        if self.delimiter != "\n" and self.deserializer == "BLOB":
            raise ConfigError("delimiter", "cannot be used with the deserializer BLOB", self.delimiter)
        if not self.file_suffix:
            raise ConfigError("file_suffix", "must not be empty", self.file_suffix)
        if self.decode_error_policy == "KEEP" and not self.is_utf8:
            object.__setattr__(self, "decode_error_policy", "REPLACE")  # only UTF-8 bytes can be kept

    def names(self) -> NameFilter:
        """Return the filter of file names.

        :raises ConfigError: a pattern is not a regular expression.
        """
        return NameFilter(self.include_pattern, self.ignore_pattern, "the file is not read")

    @property
    def is_utf8(self) -> bool:
        """True if the bytes of lines are not converted."""
        return codecs.lookup(self.encoding).name in ("utf-8", "ascii")

    @property
    def marks(self) -> Path:
        """The directory of the marks."""
        return self.spool_directory / self.tracker_directory

    @staticmethod
    def translate_flume(values: Mapping[str, str]) -> Mapping[str, str]:
        """Remove the prefix of the deserializer's keys, and accept its full class name."""
        given = without_needless(values, ("bufferMaxLines", "bufferMaxLineLength"))
        found = {key.removeprefix(_DESERIALIZER): value for key, value in given.items()}
        kind = found.get("deserializer", "LINE").removesuffix("$Builder").rpartition(".")[2]
        if kind in ("LineDeserializer", "BlobDeserializer"):
            found["deserializer"] = kind.removesuffix("Deserializer").upper()
        if found.get("outputCharset", "").upper() in ("UTF-8", "UTF8"):
            del found["outputCharset"]
        return found
