"""Logs once per file that it has another encoding, or holes of NULs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...runtime.loggers import get_logger
from ...text.printable import shown
from ...wire.encodings import HOLE, looks_like
from ..figures import Figures
from ..files.plan import Split
from .line import Block, Line

_log = get_logger("loghub.ship")
#: Maximum number of remembered files; then all are forgotten, and may be logged again.
_MOST = 10_000


class Oddities:
    """Logs oddities of files, and counts skipped NULs."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, int, int]] = set()

    def watch(self, read: Iterable[Block | Line], split: Split, figures: Figures) -> Iterator[Block | Line]:
        """Yield the lines of a range, and check them."""
        whole = split.start == 0
        end = split.start if whole or (split.begins_line and split.file.compression is None) else None
        for number, lines in enumerate(read):
            if whole and number == 0 and not split.file.encoding:
                self._check_encoding(lines.data, split)
            if end is not None and lines.offset - end >= len(HOLE):
                self._skipped(lines.offset - end, split, figures)
            end = lines.offset + len(lines.data) if isinstance(lines, Block) else None
            yield lines

    def _check_encoding(self, data: bytes, split: Split) -> None:
        found = looks_like(data)
        if found is not None and self._is_new(split):
            path = shown(split.file.path)
            _log.warning("%s looks like %s, but is read as UTF-8: use --encoding %s", path, found, found)

    def _skipped(self, nuls: int, split: Split, figures: Figures) -> None:
        figures.skipped_nuls += nuls
        if self._is_new(split):
            _log.warning(
                "%s: %d NUL bytes before a line are skipped: a program that does not append left them when the file was"
                " cut (copytruncate), or a file system after a crash; further ones are only counted",
                *(shown(split.file.path), nuls),
            )

    def _is_new(self, split: Split) -> bool:
        if len(self._logged) >= _MOST:
            self._logged.clear()
        key = split.file.path, split.file.device, split.file.inode
        new = key not in self._logged
        self._logged.add(key)
        return new
