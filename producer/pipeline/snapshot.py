"""The statistics of a pipeline at one moment."""

from __future__ import annotations

from ..model.interfaces import Sink
from ..model.metrics import (
    BATCH_STAGES,
    DROPPED,
    FAILED_BY_CODE,
    MEMORY_STAGES,
    Counters,
    DestinationStats,
    Stats,
    StreamStats,
)
from ..model.records import StreamKey, plain
from ..wire.speed import TWIN
from .batching.accumulator import LogAccumulator
from .batching.batch import ProducerBatch
from .batching.memory import MemoryBudget
from .settling.settlement import Settlement


def snapshot(
    budget: MemoryBudget,
    accumulator: LogAccumulator,
    destinations: tuple[DestinationStats, ...],
    settlement: Settlement,
    counters: Counters,
    sink: Sink,
) -> Stats:
    """Return the statistics of a pipeline at this moment."""
    batches = accumulator.incomplete()
    counts, memory = _by_stage(batches)
    used, reserved = budget.usage()
    memory["reserved"] = reserved
    memory["callbacks"] = max(0, used - sum(memory.values()))
    accepted, delivered, failed = accumulator.accepted, counters["delivered"], counters["failed"]
    return Stats(
        accepted=accepted,
        delivered=delivered,
        failed=failed,
        failed_by_code=counters.under(FAILED_BY_CODE),
        dropped=counters.under(DROPPED),
        retried=counters["retried"],
        pending=sum(batch.log_count for batch in batches),
        attempts=counters["attempts"],
        batches=counts,
        memory_limit=budget.limit,
        memory_used=used,
        memory_by_stage=memory,
        waiting_senders=budget.waiting,
        memory_wait_seconds=budget.waited,
        oldest_record_age=accumulator.oldest_age(),
        callbacks_pending=sum(handler.pending for handler in settlement.handlers),
        streams=_stream_stats(accumulator, batches),
        destinations=destinations,
        endpoints=sink.endpoints(),
        twin=TWIN,
    )


def _by_stage(batches: list[ProducerBatch]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of batches in each stage, and the bytes of memory in each."""
    counts = dict.fromkeys(BATCH_STAGES, 0)
    memory = dict.fromkeys(MEMORY_STAGES, 0)
    for batch in batches:
        stage = batch.state.value
        if stage in counts:
            counts[stage] += 1
            memory[stage] += batch.held
    return counts, memory


def _stream_stats(accumulator: LogAccumulator, batches: list[ProducerBatch]) -> tuple[StreamStats, ...]:
    pending: dict[StreamKey, tuple[int, int]] = {}
    for batch in batches:
        logs, held = pending.get(batch.key, (0, 0))
        pending[batch.key] = logs + batch.log_count, held + batch.held
    streams = []
    counts = accumulator.stream_counts()
    for key in counts.keys() | pending.keys():
        logs, held = pending.get(key, (0, 0))
        accepted, delivered, failed = counts.get(key, (logs, 0, 0))
        stats = StreamStats(
            **plain(key)._asdict(),
            accepted=accepted,
            delivered=delivered,
            failed=failed,
            pending=logs,
            pending_bytes=held,
        )
        streams.append(stats)
    return tuple(streams)
