"""Split: divides a batch that the server found too large into two halves, and completes every future once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import accumulate, pairwise

from ...model.futures import ResultHolder, SendFuture, holder_of, settle_future
from ...model.interfaces import Record
from ...model.results import Callback, Result
from ...runtime.locks import Lock
from ..batching.batch import Origin, ProducerBatch
from ..batching.open_records import Sealed
from ..settling.callbacks import run_user_code


class JoinedResult:
    """The result of one send whose logs are in two batches: failed if one of them failed.

    :param callback: the callback of the send.
    :param halves: the batches; each has its part as its only send, and calls :meth:`part_done`.
    """

    def __init__(self, callback: Callback | None, halves: Sequence[ProducerBatch]) -> None:
        self._callback = callback
        self.halves = halves
        self._result: Result | None = None
        self._lock = Lock()  # guards the following; two handler threads report
        self._done = 0
        self._watching: SendFuture | None = None

    @property
    def result(self) -> Result | None:
        """The result of the whole send; None until both parts have theirs."""
        if self._result is None:
            results = [holder_of(half, 0).result for half in self.halves]
            known = [result for result in results if result is not None]
            if len(known) == len(results):
                self._result = _joined(known)
        return self._result

    def wait(self, timeout: float | None) -> None:
        for half in self.halves:
            holder = holder_of(half, 0)
            if holder.result is None:
                holder.wait(timeout)
                return

    def follow(self, _position: int) -> None:
        return

    def keep_future(self, _position: int, future: SendFuture) -> None:
        if self.result is None:  # after a fork, a thread of the parent may hold the lock
            with self._lock:
                self._watching = future

    def find(self, position: int) -> tuple[ResultHolder, int]:
        return self, position

    def part_done(self, _result: Result) -> None:
        """Run the callback of the send after the second half; called on a handler thread as the callback of
        each half.
        """
        with self._lock:
            self._done += 1
            if self._done < len(self.halves):
                return
        whole = self.result
        if whole is None:
            raise RuntimeError("both halves of a send are completed, but one has no result")
        with self._lock:
            future, self._watching = self._watching, None
        for due in () if future is None else settle_future(future, whole):
            run_user_code(due)
        callback = self._callback
        if callback is not None:
            run_user_code(lambda: callback(whole))


def _joined(results: Sequence[Result]) -> Result:
    failed = next((result for result in results if not result.successful), None)
    if failed is None:
        return results[-1]
    # A delivered part is certainly stored.
    stored = any(result.successful or result.may_have_been_stored for result in results)
    return dataclasses.replace(failed, may_have_been_stored=stored)


class Split:
    """A batch split in two, before the halves are registered.

    :ivar halves: two new batches, to be queued after :meth:`adopt`.
    """

    def __init__(
        self, halves: tuple[ProducerBatch, ProducerBatch], middle: int = 0, joined: JoinedResult | None = None
    ) -> None:
        self.halves = halves
        self._middle = middle
        self._joined = joined

    def adopt(self, batch: ProducerBatch) -> bool:
        """Pass the sends of ``batch`` to the halves; return False if the batch was completed before."""
        if not batch.cut(self if self._joined is None else self._joined):
            return False
        if batch.origins is not None:
            self._share_origins(batch.origins)
        if batch.unconfirmed is not None:
            batch.unconfirmed.cut(self.halves)
        return True

    def _share_origins(self, origins: list[Origin]) -> None:
        left, right = self.halves
        if self._joined is None:
            left.origins, right.origins = origins[: self._middle], origins[self._middle :]
        else:
            origins[0].cut()
            left.origins = right.origins = origins

    def find(self, position: int) -> tuple[ResultHolder, int]:
        left, right = self.halves
        return (left, position) if position < self._middle else (right, position - self._middle)


def split(batch: ProducerBatch, records: Sequence[bytes]) -> Split:
    """Split ``batch`` between sends near its middle, or inside its only send.

    :param records: its records, one log each, at least two.
    :raises RuntimeError: not as many records as the batch has logs: a bug of the sink.
    """
    if len(records) != batch.log_count:
        raise RuntimeError(f"the sink decoded {len(records)} records from a batch of {batch.log_count} logs")
    counts = batch.logs_of_sends
    if len(counts) == 1:
        return _split_send(batch, records)
    starts = [0, *accumulate(counts)]
    sends: list[Record] = [b"".join(records[start:end]) for start, end in pairwise(starts)]
    middle = _middle([len(send) for send in sends])
    left = _half(batch, sends[:middle], counts[:middle], batch.callbacks[:middle])
    right = _half(batch, sends[middle:], counts[middle:], batch.callbacks[middle:])
    return Split(_sharing(batch, left, right), middle)


def _split_send(batch: ProducerBatch, records: Sequence[bytes]) -> Split:
    middle = _middle([len(record) for record in records])
    left, right = (_half(batch, [b"".join(part)], [len(part)], ()) for part in (records[:middle], records[middle:]))
    halves = _sharing(batch, left, right)
    joined = JoinedResult(next(iter(batch.callbacks), None), halves)
    for half in halves:
        half.callbacks = [joined.part_done]
    return Split(halves, joined=joined)


def _middle(sizes: Sequence[int]) -> int:
    """Return the position before which about half of the bytes are; never an end."""
    half = sum(sizes) / 2
    for position, so_far in enumerate(accumulate(sizes), 1):
        if so_far >= half:
            return min(position, len(sizes) - 1)
    return 1


def _half(
    batch: ProducerBatch, sends: list[Record], counts: Sequence[int], callbacks: Sequence[Callback | None]
) -> ProducerBatch:
    """Return a batch of some of the sends, with the attempts of the whole."""
    half = batch.empty_half()
    half.fill(
        Sealed(
            records=sends,
            size=batch.tail_size + sum(map(len, sends)),
            logs=sum(counts),
            sends=len(sends),
            spent=0,
            callbacks=callbacks,
            logs_of_send={position: logs for position, logs in enumerate(counts) if logs != 1},
        )
    )
    return half


def _sharing(batch: ProducerBatch, left: ProducerBatch, right: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
    """Return both halves, which share the memory and the number of ``batch``."""
    tail = batch.tail_size
    left.held = batch.held * (left.size - tail) // max(left.size + right.size - 2 * tail, 1)
    right.held = batch.held - left.held
    left.part, right.part = (*batch.part, 0), (*batch.part, 1)
    # The number stays with the first half. If nothing was stored under it, the other half gets the next number. If that
    # is unknown, the other half waits for the answer to the first.
    left.sequence = batch.sequence
    return left, right
