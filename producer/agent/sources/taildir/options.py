"""The options of ``taildir``, with Flume's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....model.errors import ConfigError
from ....model.options import option
from ....wire.encodings import is_utf8
from ....wire.log_start import Logs, StartPattern
from .groups import Group, file_group, glob_group

_NOT_NEEDED = "taken from Flume's files and not needed: "
_FLUMES_FILE = "~/.flume/taildir_position.json"
#: Milliseconds; Flume takes fewer.
_LEAST_IDLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaildirOptions:
    """Flume's ``TAILDIR``'s, and some more."""

    paths: tuple[str, ...] = option((), doc="globs of the files to follow; ** for any depth")
    file_groups: Mapping[str, str] = option(
        {}, flume="filegroups", doc="by a name of yours: a directory, a slash, and a regular expression for file names"
    )
    allow_links_to: tuple[str, ...] = option(
        (), doc="directories below which links may lead, besides those of the files, and pods beside containers"
    )
    headers: Mapping[str, Mapping[str, str]] = option({}, doc="by file group: headers of its events")
    file_header: bool = option(False, doc="whether events have a header with the path of their file")
    file_header_key: str = option("file", doc="the name of that header")
    byte_offset_header: bool = option(
        False, doc="whether events have a header byteoffset: where in the file they begin; costs time for each line"
    )
    skip_to_end: bool = option(
        False, doc="whether files that are there when the source is started for the first time are read from their end"
    )
    settle: float = option(
        10.0, least=0, doc="seconds without a write, after which a last line without an end is taken as it is"
    )
    idle_timeout: float = option(120.0, scale=0.001, least=1, doc="seconds without a write: a file is closed")
    multiline_start: str | None = option(
        None, doc="an event is several lines, of which the first one matches this regular expression"
    )
    multiline_timeout: float = option(
        5.0, least=0, doc="seconds without a write, after which such an event is taken to be complete"
    )
    line_format: str = option(
        "plain",
        choices=("plain", "cri"),
        doc="cri: lines of Kubernetes' container runtimes; their parts are joined, time and stream become headers",
    )
    encoding: str = option("utf-8", doc="of the files; another than UTF-8 is converted to it")
    max_line_bytes: int = option(
        4 << 20, least=1024, unit="bytes", doc="a longer line, or event of several, comes in parts"
    )
    max_open_files: int = option(512, least=1, doc="files that are kept open at a time")
    forget_after: float = option(86_400.0, least=0, doc="seconds: how long the position of a file that is gone is kept")
    position_file: Path | None = option(
        None,
        doc="Flume's positions, read once when the source is started for the first time; ours lie with the channels",
    )
    batch_size: int = option(100, least=1, doc=_NOT_NEEDED + "lines travel in blocks of 1 MiB at most")
    max_batch_count: int | None = option(None, doc=_NOT_NEEDED + "files take turns")
    write_pos_interval: float = option(3.0, scale=0.001, doc=_NOT_NEEDED + "each commit has its position")
    backoff_sleep_increment: float = option(1.0, scale=0.001, doc=_NOT_NEEDED + "pauses grow from 0.1 to 1 s")
    max_backoff_sleep: float = option(5.0, scale=0.001, doc=_NOT_NEEDED + "pauses grow from 0.1 to 1 s")
    cache_pattern_matching: bool = option(True, doc=_NOT_NEEDED + "directories are read when they have changed")

    def __post_init__(self) -> None:
        if not self.paths and not self.file_groups:
            raise ConfigError("paths", "is missing: globs of the files to follow, or file_groups", None)
        if self.line_format == "cri" and (self.multiline_start is not None or self.byte_offset_header):
            raise ConfigError(
                "line_format", "cri goes without multiline_start and byte_offset_header", self.line_format
            )
        self._check_encoding()
        self.groups()
        self.logs()
        for group in self.headers:
            if group not in self.file_groups and group != "paths":
                raise ConfigError("headers", f"must name a file group: {', '.join(self.file_groups) or 'paths'}", group)

    def _check_encoding(self) -> None:
        try:
            utf8 = is_utf8(self.encoding)
        except LookupError as error:
            raise ConfigError("encoding", "must be an encoding of text that Python knows", self.encoding) from error
        if not utf8 and (self.line_format == "cri" or self.byte_offset_header):
            raise ConfigError(
                "encoding",
                "other than utf-8 goes without byte_offset_header, since events are converted, and line_format = cri, "
                "which runtimes write in UTF-8: leave these out",
                self.encoding,
            )

    def groups(self) -> list[Group]:
        """What is followed, in order: a file belongs to the first group that has it.

        :raises ConfigError: one is not what it must be.
        """
        return [
            *(file_group(name, text, self.headers.get(name, {})) for name, text in self.file_groups.items()),
            *(glob_group(text, self.headers.get("paths", {})) for text in self.paths),
        ]

    def logs(self) -> Logs | None:
        """How events of several lines begin.

        :raises ConfigError: the expression is none.
        """
        if self.multiline_start is None:
            return None
        try:
            return Logs(StartPattern(self.multiline_start), self.max_line_bytes)
        except ValueError as error:
            raise ConfigError("multiline_start", str(error), self.multiline_start) from error

    @staticmethod
    def translate_flume(values: Mapping[str, str]) -> Mapping[str, Any]:
        """``filegroups`` is a list there, with a key for each; ``headers.<group>.<name>`` are keys, too."""
        others = {key: value for key, value in values.items() if not key.startswith(("filegroups", "headers."))}
        headers: dict[str, dict[str, str]] = {}
        for key, value in values.items():
            if key.startswith("headers."):
                group, _, name = key.removeprefix("headers.").partition(".")
                headers.setdefault(group, {})[name] = value
        listed = values.get("filegroups", "").split()
        groups = {group: values.get(f"filegroups.{group}", "") for group in listed}
        strays = {
            key: value
            for key, value in values.items()
            if key.startswith("filegroups.") and key.removeprefix("filegroups.") not in groups
        }
        if 0 <= _number(others.get("idleTimeout")) < _LEAST_IDLE:
            others["idleTimeout"] = str(_LEAST_IDLE)
        return {"positionFile": _FLUMES_FILE, **others, **strays, "filegroups": groups, "headers": headers}


def _number(text: str | None) -> float:
    """Not a number, if it is none: the option's own rule says so."""
    try:
        return float(text or "")
    except ValueError:
        return math.nan
