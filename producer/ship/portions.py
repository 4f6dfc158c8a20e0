"""The unit of work of a task: the driver plans portions, and an engine assigns them to tasks."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Self

from .files.plan import Split


@dataclass(frozen=True, slots=True)
class Portion:
    """The ranges that one task ships.

    :ivar splits: ranges of files.
    :ivar run: the name of the job or batch for exactly-once delivery; empty for at-least-once.
    :ivar number: its number in the plan of the job; -1 without a plan.
    :ivar lost: sentences about ranges that cannot be read any more.
    """

    splits: tuple[Split, ...]
    lost: tuple[str, ...] = ()
    run: str = ""
    number: int = -1

    def packed(self) -> bytes:
        """Serialise the portion; a path may not be UTF-8, so text columns cannot hold it."""
        return pickle.dumps(self)

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """Deserialise a portion."""
        portion: Self = pickle.loads(packed)  # noqa: S301  (the driver wrote it)
        return portion
