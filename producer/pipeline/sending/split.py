"""Cutting a batch that the server found too large: two halves, each sent on its own, every future settled once."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from ...results import Result, SendFuture, settle_future
from ..batching.batch import ProducerBatch, logs_of_sends


class JoinedResult:
    """The result of one send whose logs travel in two batches: it has failed if one of them has.

    Stands where the batch stood in the send's future.

    :ivar future: the send's future.
    :ivar parts: the futures of the two halves, which nobody else sees.
    """

    def __init__(self, future: SendFuture, run: Callable[[Callable[[], object]], None]) -> None:
        self.future = future
        self.parts: list[SendFuture] = []
        self._run = run
        self._result: Result | None = None
        self._lock = threading.Lock()  # guards _told; success and failure are told by two threads
        self._told = 0

    @property
    def result(self) -> Result | None:
        """The whole's result, once both parts have theirs."""
        if self._result is None:
            results = [part._holder.result for part in self.parts]
            known = [result for result in results if result is not None]
            if len(known) == len(results):
                self._result = _joined(known)
        return self._result

    def wait(self, timeout: float | None) -> None:
        """See :class:`~producer.results.ResultHolder`."""
        for part in self.parts:
            if part._holder.result is None:
                part._holder.wait(timeout)
                return

    def heed(self, future: SendFuture) -> None:
        """See :class:`~producer.results.ResultHolder`; the batches of the parts hold everything."""

    def part_done(self, _result: Result) -> None:
        """Called on a handler thread as the callback of each half."""
        with self._lock:
            self._told += 1
            if self._told < len(self.parts):
                return
        whole = self.result
        if whole is None:
            raise RuntimeError("both halves of a send were told, and one has no result")
        for due in settle_future(self.future, whole):
            self._run(due)


def _joined(results: Sequence[Result]) -> Result:
    failed = next((result for result in results if not result.successful), None)
    if failed is None:
        return results[-1]
    # A part that was delivered is stored for certain.
    stored = any(result.successful or result.may_have_been_stored for result in results)
    return dataclasses.replace(failed, may_have_been_stored=stored)


class Split:
    """A batch cut in two, of which nobody has heard yet.

    :ivar halves: two new batches, to be queued once :meth:`adopt` was called.
    """

    def __init__(
        self,
        batch: ProducerBatch,
        halves: tuple[ProducerBatch, ProducerBatch],
        middle: int = 0,
        joined: JoinedResult | None = None,
    ) -> None:
        self.halves = halves
        self._batch, self._middle = batch, middle
        self._joined = joined

    def adopt(self) -> None:
        """Point the futures at the batches that will settle them; after the whole batch went to its final state."""
        self._batch.share_with(self.halves, self._middle)
        if self._batch.doubt is not None:
            self._batch.doubt.cut(self.halves)
        if self._joined is not None:
            self._joined.future._holder = self._joined
            return
        for half in self.halves:
            for future in half.futures:
                future._holder = half


def split(batch: ProducerBatch, records: Sequence[bytes], run: Callable[[Callable[[], object]], None]) -> Split:
    """Cut ``batch`` between sends near its middle; inside the send if it holds only one.

    :param records: its records, one log each, at least two.
    :param run: runs user code that became due.
    :raises RuntimeError: not as many records as the batch has logs: a bug of the sink.
    """
    if len(records) != batch.log_count:
        raise RuntimeError(f"the sink decoded {len(records)} records from a batch of {batch.log_count} logs")
    counts = logs_of_sends(batch)
    if len(counts) == 1:
        return _split_send(batch, records, run)
    starts = [0, *accumulate(counts)]
    sends = [b"".join(records[start:end]) for start, end in pairwise(starts)]
    middle = _middle([len(send) for send in sends])
    halves = _halves(batch, sends[:middle], sends)
    for position, (send, future, logs) in enumerate(zip(sends, batch.futures, counts, strict=True)):
        halves[position >= middle].take_over(send, future, logs)
    return Split(batch, halves, middle)


def _split_send(batch: ProducerBatch, records: Sequence[bytes], run: Callable[[Callable[[], object]], None]) -> Split:
    middle = _middle([len(record) for record in records])
    halves = _halves(batch, records[:middle], records)
    joined = JoinedResult(batch.futures[0], run)
    for half, part in zip(halves, (records[:middle], records[middle:]), strict=True):
        future = SendFuture(half, joined.part_done)
        half.take_over(b"".join(part), future, len(part))
        joined.parts.append(future)
    return Split(batch, halves, joined=joined)


def _middle(sizes: Sequence[int]) -> int:
    """The position at which the parts before it hold about half of the bytes; never at an end."""
    half = sum(sizes) / 2
    for position, so_far in enumerate(accumulate(sizes), 1):
        if so_far >= half:
            return min(position, len(sizes) - 1)
    return 1


def _halves(
    batch: ProducerBatch, left_part: Sequence[bytes], whole: Sequence[bytes]
) -> tuple[ProducerBatch, ProducerBatch]:
    """Two empty batches that share what ``batch`` owes to the memory budget, and remember its attempts."""
    left, right = batch.empty_half(), batch.empty_half()
    left.held = batch.held * sum(map(len, left_part)) // max(sum(map(len, whole)), 1)
    right.held = batch.held - left.held
    # The number stays with the first half. If nothing was stored under it the other one gets the next; if that is not
    # known it waits for the answer to the first.
    left.sequence = batch.sequence
    return left, right
