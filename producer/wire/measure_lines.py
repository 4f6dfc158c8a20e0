"""How many lines a block has, and of what bytes: what must be known of each block, in one look at it.

``_measure_lines.pyx`` is the compiled twin; :mod:`.speed` picks one of them.
"""

from __future__ import annotations

from typing import NamedTuple


class LineFigures(NamedTuple):
    r"""What a block of lines is like.

    :ivar ends: ``\n`` in it.
    :ivar long_ends: those of them that are ``\r\n``.
    :ivar ascii: whether all bytes are ASCII.
    """

    ends: int
    long_ends: int
    ascii: bool


def measure_lines(block: bytes) -> LineFigures:
    """Look at a block."""
    return LineFigures(block.count(b"\n"), block.count(b"\r\n") if b"\r" in block else 0, block.isascii())
