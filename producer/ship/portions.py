"""A portion: what one task reads and ships. The driver plans portions, an engine hands them out."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Self

from .files.plan import Split


@dataclass(frozen=True, slots=True)
class Portion:
    """What one task reads.

    :ivar splits: ranges of files.
    :ivar run: names the job, or its batch, so that each line of it is stored once; empty if it may come twice.
    :ivar number: its place in the plan of the job; -1 if nobody remembers which have ended.
    :ivar lost: sentences about ranges that cannot be read any more.
    """

    splits: tuple[Split, ...]
    lost: tuple[str, ...] = ()
    run: str = ""
    number: int = -1

    def packed(self) -> bytes:
        """As bytes, for a column or a pipe. Columns of paths would not do: a path may not be UTF-8."""
        return pickle.dumps(self)

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """The portion that was packed."""
        portion: Self = pickle.loads(packed)  # noqa: S301  (it comes from the driver)
        return portion
