"""CutRule: the limits of a batch, and of a piece that is added to one at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ...model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES, ProducerConfig
from .batch import BATCH_OVERHEAD
from .open_records import RECORD_OVERHEAD


@dataclass(frozen=True, slots=True)
class CutRule:
    """The limits by which every way to send cuts.

    :ivar threshold_bytes: the size of a full batch.
    :ivar threshold_count: the number of logs in a full batch.
    :ivar piece_bytes: the approximate size of one piece, when many logs are sent at once.
    :ivar piece_count: the maximum number of logs in one piece.
    """

    threshold_bytes: int
    threshold_count: int
    piece_bytes: int
    piece_count: int

    @classmethod
    def of(cls, config: ProducerConfig) -> Self:
        """Return the rule of a configuration: a piece is about a batch, and half of the memory at most."""
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
        """True if a batch of ``size`` bytes and ``logs`` logs is full."""
        return size >= self.threshold_bytes or logs >= self.threshold_count
