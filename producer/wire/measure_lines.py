"""Counts the lines of a block, and checks its bytes, in one pass.

``_measure_lines.pyx`` is the native implementation; :mod:`.speed` selects one.
"""

from __future__ import annotations

from typing import NamedTuple


class LineFigures(NamedTuple):
    r"""The properties of a block of lines.

    :ivar ends: number of ``\n``.
    :ivar long_ends: number of ``\r\n``.
    :ivar ascii: True if all bytes are ASCII.
    """

    ends: int
    long_ends: int
    ascii: bool


def measure_lines(block: bytes) -> LineFigures:
    """Return the properties of a block."""
    return LineFigures(block.count(b"\n"), block.count(b"\r\n") if b"\r" in block else 0, block.isascii())
