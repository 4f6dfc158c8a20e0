"""The options of ``taildir``, with Flume's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ....model.errors import ConfigError
from ....model.options import option
from ....wire.encodings import is_utf8
from ..reading.batches import BatchMaker
from ..reading.containers import FORMATS, ContainerLines
from ..reading.line_options import LineOptions
from .groups import Group, file_group, glob_group

_NOT_NEEDED = "accepted from Flume's files, without effect: "
_FLUMES_FILE = "~/.flume/taildir_position.json"
#: Milliseconds; Flume accepts fewer.
_LEAST_IDLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaildirOptions(LineOptions):
    """Options of the ``taildir`` source: Flume's ``TAILDIR``, and more."""

    #: Hints for names of other agents.
    foreign: ClassVar[Mapping[str, str]] = {
        "skip_to_end": 'it is start_at = "end"',
        "close_inactive": "idle_timeout",
        "ignore_older_secs": "ignore_older",
        "read_from": "start_at",
    }

    paths: tuple[str, ...] = option((), doc="globs of the files to follow; ** matches directories of any depth")
    file_groups: Mapping[str, str] = option(
        {}, flume="filegroups", doc="groups by name, each a directory, a slash and a regular expression for file names"
    )
    allow_links_to: tuple[str, ...] = option(
        (), doc="directories that links may lead to, besides those of the files (and pods beside containers)"
    )
    headers: Mapping[str, Mapping[str, str]] = option({}, doc="headers for the events of each file group")
    file_header: bool = option(False, doc="add a header with the file's path")
    file_header_key: str = option("file", doc="name of the header for the path")
    pod_headers: bool = option(
        False, doc="add the headers namespace, pod, container and uid of Kubernetes, from the path of a container's log"
    )
    byte_offset_header: bool = option(
        False, doc="add the header byteoffset, the event's first byte in the file; costs time for each line"
    )
    start_at: str = option(
        "beginning",
        flume="skipToEnd",
        choices=("beginning", "end"),
        doc="where the source's very first start begins in existing files; later files are read from their beginning",
    )
    group_start_at: Mapping[str, str] = option({}, doc="start_at of single file groups, by name")
    ignore_older: float | None = option(
        None, least=0, doc="seconds; a new file that was not written for longer is not opened until it is written"
    )
    group_ignore_older: Mapping[str, float] = option({}, doc="ignore_older of single file groups, by name")
    settle: float = option(10.0, least=0, doc="seconds without a write after which an unfinished last line is read")
    idle_timeout: float = option(120.0, scale=0.001, least=1, doc="seconds without a write until a file is closed")
    multiline_timeout: float = option(
        5.0, least=0, doc="seconds without a write after which a multi-line event is complete"
    )
    line_format: str = option(
        "plain",
        choices=("plain", *FORMATS),
        doc="cri: lines of Kubernetes container runtimes; docker: of Docker's json-file driver; containers: either; "
        "parts are joined, time and stream become headers",
    )
    max_open_files: int = option(512, least=1, doc="maximum number of open files")
    forget_after: float = option(86_400.0, least=0, doc="seconds for which the position of a deleted file is kept")
    position_file: Path | None = option(
        None,
        doc="Flume's position file, read once at the very first start; positions are stored with the channels",
    )
    batch_size: int = option(100, least=1, doc=_NOT_NEEDED + "lines are read in blocks of at most 1 MiB")
    max_batch_count: int | None = option(None, doc=_NOT_NEEDED + "files take turns")
    write_pos_interval: float = option(3.0, scale=0.001, doc=_NOT_NEEDED + "each commit stores the position")
    backoff_sleep_increment: float = option(1.0, scale=0.001, doc=_NOT_NEEDED + "pauses grow from 0.1 s to 1 s")
    max_backoff_sleep: float = option(5.0, scale=0.001, doc=_NOT_NEEDED + "pauses grow from 0.1 s to 1 s")
    cache_pattern_matching: bool = option(True, doc=_NOT_NEEDED + "only changed directories are read")

    def __post_init__(self) -> None:
        if not self.paths and not self.file_groups:
            raise ConfigError("paths", "is missing: globs of the files to follow, or file_groups", None)
        if self.line_format in FORMATS and self.byte_offset_header:
            raise ConfigError("line_format", "of containers cannot be used with byte_offset_header", self.line_format)
        self.check_lines()
        self._check_bytes()
        if self.delimiter != "\n" and self.line_format in FORMATS:
            raise ConfigError("delimiter", "cannot be used with the line_format of containers", self.delimiter)
        self.groups()
        for name in ("headers", "group_start_at", "group_ignore_older"):
            for group in getattr(self, name):
                if group not in self.file_groups and group != "paths":
                    raise ConfigError(name, f"must name a file group: {', '.join(self.file_groups) or 'paths'}", group)
        for start in self.group_start_at.values():
            if start not in ("beginning", "end"):
                raise ConfigError("group_start_at", "must be beginning or end", start)

    def _check_bytes(self) -> None:
        if not is_utf8(self.encoding) and (self.line_format in FORMATS or self.byte_offset_header):
            raise ConfigError(
                "encoding",
                "other than utf-8 cannot be used with byte_offset_header, since events are converted, or with "
                f"line_format = {self.line_format}, which runtimes write in UTF-8",
                self.encoding,
            )

    def groups(self) -> list[Group]:
        """Return the groups in order; a file belongs to the first group that matches.

        :raises ConfigError: a group is invalid.
        """
        found = [
            *(file_group(name, text, self.headers.get(name, {})) for name, text in self.file_groups.items()),
            *(glob_group(text, self.headers.get("paths", {})) for text in self.paths),
        ]
        return [
            replace(
                group,
                at_end=self.group_start_at.get(group.name, self.start_at) == "end",
                ignore_older=self.group_ignore_older.get(group.name, self.ignore_older),
            )
            for group in found
        ]

    def batch_maker(self) -> BatchMaker:
        return BatchMaker(self.logs(), self.byte_offset_header, self.containers(), self.delimiter)

    def containers(self) -> ContainerLines | None:
        """Return the rules of container logs; None for other files."""
        return ContainerLines(self.line_format, self.logs()) if self.line_format in FORMATS else None

    @staticmethod
    def translate_flume(values: Mapping[str, str]) -> Mapping[str, Any]:
        """Nest Flume's ``filegroups.<group>`` and ``headers.<group>.<name>`` by group."""
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
        if (skip := others.get("skipToEnd", "").lower()) in ("true", "false"):
            others["skipToEnd"] = "end" if skip == "true" else "beginning"
        if 0 <= _number(others.get("idleTimeout")) < _LEAST_IDLE:
            others["idleTimeout"] = str(_LEAST_IDLE)
        return {"positionFile": _FLUMES_FILE, **others, **strays, "filegroups": groups, "headers": headers}


def _number(text: str | None) -> float:
    """Return the number; NaN if the text is not one, which the option's own rule refuses."""
    try:
        return float(text or "")
    except ValueError:
        return math.nan
