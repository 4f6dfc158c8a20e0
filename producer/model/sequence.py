"""The numbers of a stream's pieces, when the caller owns them."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import Any, Self

from ..text.printable import described
from .errors import InvalidArgumentError
from .records import SEQUENCED

#: The highest number of a batch; the server's is 64 bits wide.
MAX_NUMBER = 2**63 - 1
_HASH_KEY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """The numbers of a stream's pieces, when the caller owns them: whoever sends the same pieces in the same order
    under the same key has each of them stored once, also from another process.

    :ivar key: 32 lower-case hexadecimal digits: the hash key of the requests, which names the writer and chooses the
        shard. One logstore at a time may see it.
    :ivar first: the number of the first piece, 1 to 2**63 - 1; the n-th has ``first + n - 1``.
    :raises InvalidArgumentError: a wrong key or number.
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
    """The ``order`` of a stream with a :class:`SequenceKey`: its text, and the count of one handle.

    The text is the hash key and a random part, so that each handle counts for itself: a retried task begins anew
    beside the one that it replaces. It belongs to the process that made it.

    :ivar next: the number of the next piece; guarded by what makes acceptance atomic: the accumulator's lock, or behind
        a channel the turn of the one who stores.
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
        """Whether this process may go on counting.

        :raises InvalidArgumentError: it was forked from the one that opened the stream, whose numbers these are.
        """
        if self._process != os.getpid():
            raise InvalidArgumentError(
                "a stream with a SequenceKey was opened before a fork: its numbers are the parent's, and what another "
                "process sends under them counts as written; open a stream with a key of its own here"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.next != self._sequence.first:
            raise TypeError(
                f"a stream with a SequenceKey that has sent pieces cannot be pickled: open it where it is used, with "
                f"SequenceKey({self._sequence.key!r}, first={self.next}) if it is to go on there"
            )
        return type(self), (self._sequence,)
