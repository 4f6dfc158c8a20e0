"""CutRule: where a batch ends, and how much goes into one at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ...model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES, ProducerConfig
from .batch import BATCH_OVERHEAD
from .open_records import RECORD_OVERHEAD


@dataclass(frozen=True, slots=True)
class CutRule:
    """What every way to send cuts by.

    :ivar threshold_bytes: a batch of this size is full.
    :ivar threshold_count: likewise, logs.
    :ivar piece_bytes: of many logs so many bytes become one piece, about.
    :ivar piece_count: of many logs no more than these become one piece.
    """

    threshold_bytes: int
    threshold_count: int
    piece_bytes: int
    piece_count: int

    @classmethod
    def of(cls, config: ProducerConfig) -> Self:
        """The rule of a configuration: a piece is about a batch, and half of the memory at most."""
        memory = config.total_size_in_bytes // 2 - RECORD_OVERHEAD - BATCH_OVERHEAD
        return cls(
            threshold_bytes=config.batch_size_threshold_in_bytes,
            threshold_count=config.batch_count_threshold,
            piece_bytes=min(config.batch_size_threshold_in_bytes, MAX_BATCH_SIZE_IN_BYTES // 2, max(memory, 1)),
            piece_count=min(config.batch_count_threshold, MAX_BATCH_COUNT),
        )

    @property
    def thresholds(self) -> tuple[int, int]:
        """Both thresholds: bytes, and logs."""
        return self.threshold_bytes, self.threshold_count

    def is_full(self, size: int, logs: int) -> bool:
        """Whether a batch of ``size`` bytes and ``logs`` logs goes."""
        return size >= self.threshold_bytes or logs >= self.threshold_count
