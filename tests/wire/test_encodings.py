"""The encoding of the bytes of lines."""

import sys

from producer.wire.encodings import is_valid_utf8


def test_bytes_that_were_checked_can_be_freed() -> None:
    """A check keeps no reference to the bytes: a block of lines with other letters than ASCII is freed after it."""
    for data in ("größer\n".encode() * 1000, b"\xff" * 1000):
        references = sys.getrefcount(data)
        is_valid_utf8(data)
        assert sys.getrefcount(data) == references
