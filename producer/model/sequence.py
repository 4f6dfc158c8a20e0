"""Sequence: numbers of a stream's pieces that the caller owns."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import Any, Self

from ..text.printable import described
from .errors import InvalidArgumentError
from .records import SEQUENCED

#: The highest number of a batch; the server's field has 64 bits.
MAX_NUMBER = 2**63 - 1
_HASH_KEY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """Numbers of a stream's pieces, owned by the caller.

    A caller that sends the same pieces in the same order under the same key gets each stored exactly once, also from
    another process.

    :ivar key: 32 lower-case hexadecimal digits: the hash key of the requests, which identifies the writer and chooses
        the shard. Use it for one logstore at a time.
    :ivar first: the number of the first piece, 1 to 2**63 - 1; the n-th has ``first + n - 1``.
    :raises InvalidArgumentError: the key or the number is invalid.
    """

    key: str
    first: int = 1

    def __post_init__(self) -> None:
        key: object = self.key
        first: object = self.first
        if not isinstance(key, str) or not _HASH_KEY.fullmatch(key):
            raise InvalidArgumentError(
                "SequenceKey.key: must be 32 lower-case hexadecimal digits, such as a UUID's hex, got "
                f"{described(self.key)}"
            )
        if not isinstance(first, int) or isinstance(first, bool) or not 1 <= first <= MAX_NUMBER:
            rule = "SequenceKey.first: must be an integer from 1 to 2**63 - 1"
            raise InvalidArgumentError(f"{rule}, got {described(self.first)}")


class Numbering(str):
    """``order`` of a stream with a :class:`SequenceKey`: its text, and the counter of one handle.

    The text is the hash key and a random part, so that each handle counts for itself: a retried task starts over beside
    the one that it replaces. It belongs to the process that made it.

    :ivar next: the number of the next piece; guarded by the accumulator's lock, or with a durable channel by the turn
        of the storing thread.
    """

    __slots__ = ("__weakref__", "_process", "_sequence", "next")

    next: int
    _sequence: SequenceKey
    _process: int

    def __new__(cls, sequence: SequenceKey) -> Self:
        self = super().__new__(cls, f"{SEQUENCED}{sequence.key}:{secrets.token_hex(8)}")
        self._sequence, self._process = sequence, os.getpid()
        self.next = sequence.first
        return self

    def check(self) -> None:
        """Check that this process may use the numbers.

        :raises InvalidArgumentError: it was forked from the process that opened the stream and owns them.
        """
        if self._process != os.getpid():
            raise InvalidArgumentError(
                "a stream with a SequenceKey was opened before a fork: its numbers belong to the parent, and records "
                "of this process would count as already written: open a stream with another key here"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.next != self._sequence.first:
            raise TypeError(
                f"a stream with a SequenceKey that has sent pieces cannot be pickled: open it where it is used, with "
                f"SequenceKey({self._sequence.key!r}, first={self.next}) to continue there"
            )
        return type(self), (self._sequence,)
