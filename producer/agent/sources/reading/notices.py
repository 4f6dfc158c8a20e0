"""Notices: warnings, once a file, about a wrong encoding, invalid bytes, and holes of NUL bytes."""

from __future__ import annotations

import logging

from ....runtime.file_identity import Key
from ....wire.encodings import is_utf8, looks_like
from ...events.counters import Counters
from .cutting import Block

#: Maximum number of remembered files; beyond it all are forgotten, and warnings may repeat.
_MOST = 10_000


class Notices:
    """Logger of the warnings, and counter of skipped NUL bytes and invalid characters.

    :param encoding: the configured encoding.
    :param option: the name of the option for the encoding.
    """

    def __init__(self, log: logging.Logger, counters: Counters, encoding: str, option: str) -> None:
        self._log, self._counters = log, counters
        self._encoding, self._utf8, self._option = encoding, is_utf8(encoding), option
        self._warned: set[tuple[Key, str]] = set()

    def look(self, place: str, key: Key, block: Block) -> None:
        """Check a block that is about to be put."""
        if block.hole:
            self._counters.add(SkippedNulCount=block.hole)
            if self._is_new(key, "hole"):
                self._log.warning(
                    "%s: %d NUL bytes from byte %d on are skipped: left by a program that does not append when its file"
                    " was truncated (copytruncate), or by a crash of the file system; later ones are only counted",
                    *(place, block.hole, block.start),
                )
        elif block.start == 0 and self._utf8:
            found = looks_like(block.data)
            if found is not None and self._is_new(key, "encoding"):
                self._log.warning(
                    '%s looks like %s, and is read as UTF-8: set %s = "%s" for such files',
                    *(place, found, self._option, found),
                )

    def count(self, place: str, key: Key, replaced: int) -> None:
        """Count characters that were invalid in the encoding, and became U+FFFD."""
        if replaced:
            self._counters.add(ReplacedCharacterCount=replaced)
            if self._is_new(key, "replaced"):
                self._log.warning(
                    "%s: bytes are invalid in %s and become U+FFFD: set %s to the file's encoding; later ones are only"
                    " counted",
                    *(place, self._encoding, self._option),
                )

    def _is_new(self, key: Key, what: str) -> bool:
        if len(self._warned) >= _MOST:
            self._warned.clear()
        new = (key, what) not in self._warned
        self._warned.add((key, what))
        return new
