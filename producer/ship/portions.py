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
    :ivar lost: sentences about ranges that cannot be read any more.
    """

    splits: tuple[Split, ...]
    lost: tuple[str, ...] = ()

    def packed(self) -> bytes:
        """As bytes, for a column or a pipe. Columns of paths would not do: a path may not be UTF-8."""
        return pickle.dumps(self)

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """The portion that was packed."""
        portion: Self = pickle.loads(packed)  # noqa: S301  (it comes from the driver)
        return portion
