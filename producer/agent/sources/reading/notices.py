"""Notices: what is said once of a file that is not what it should be: of another encoding, or with holes."""

from __future__ import annotations

import logging

from ....runtime.file_identity import Key
from ....wire.encodings import is_utf8, looks_like
from ...events.counters import Counters
from .reader import Block

#: Files that are remembered; then all are forgotten, and may be told of again.
_MOST = 10_000


class Notices:
    """Logs them, and counts NULs that are skipped.

    :param encoding: as it is configured.
    :param option: that names the encoding.
    """

    def __init__(self, log: logging.Logger, counters: Counters, encoding: str, option: str) -> None:
        self._log, self._counters = log, counters
        self._utf8, self._option = is_utf8(encoding), option
        self._told: set[tuple[Key, str]] = set()

    def look(self, place: str, key: Key, block: Block) -> None:
        """Look at a block that is about to be put."""
        if block.hole:
            self._counters.add(SkippedNulCount=block.hole)
            if self._is_new(key, "hole"):
                self._log.warning(
                    "%s: %d NUL bytes from byte %d on are skipped: a program that does not append left them when the"
                    " file was cut (copytruncate), or a file system after a crash; further ones are only counted",
                    *(place, block.hole, block.start),
                )
        elif block.start == 0 and self._utf8:
            found = looks_like(block.data)
            if found is not None and self._is_new(key, "encoding"):
                self._log.warning(
                    '%s looks like %s, and is read as UTF-8: set %s = "%s" for such files',
                    *(place, found, self._option, found),
                )

    def _is_new(self, key: Key, what: str) -> bool:
        if len(self._told) >= _MOST:
            self._told.clear()
        new = (key, what) not in self._told
        self._told.add((key, what))
        return new
