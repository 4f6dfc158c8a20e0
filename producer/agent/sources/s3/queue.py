"""Queue: tasks from the notifications in an SQS queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...events.interfaces import Context, Outlet
from .clients import S3Error, translated
from .feeds import MOST_UNSAFE, Task
from .notifications import NotificationError, objects_of
from .objects import WHOLE
from .options import S3Options
from .reader import ObjectReader, Outcome

#: Maximum number of messages in a request to SQS.
_BATCH = 10
#: Seconds between two rounds of deletions, and of a long poll while messages are held.
_ROUND = 1
#: Maximum number of names of objects that are remembered.
_MOST_KNOWN = 10_000


@dataclass(slots=True)
class _Held:
    """A message that was received and is not yet deleted.

    :ivar handle: the receipt handle.
    :ivar extend_at: when to extend the visibility timeout, monotonic seconds.
    :ivar names: names of its objects once all are read; None before.
    """

    handle: str
    extend_at: float
    names: tuple[str, ...] | None = None


class Queue:
    """Feed of the objects that the messages of one queue name.

    :param client: the client of SQS.
    :ivar _held: messages by task.
    :ivar _known: names of objects that were read, the oldest first.
    """

    def __init__(self, client: Any, options: S3Options, context: Context, outlet: Outlet, reader: ObjectReader) -> None:
        self._client, self._options, self._outlet, self._reader = client, options, outlet, reader
        self._clock = context.clock
        self._keys = options.keys()
        self._held: dict[str, _Held] = {}
        self._known: dict[str, None] = dict.fromkeys(sorted(outlet.names()))
        self._next_round = self._clock.monotonic()
        self._number = 0

    def tasks(self, running: Collection[object]) -> Iterator[Task | None]:
        while True:
            if len(self._held) >= MOST_UNSAFE:
                yield None
                continue
            for body, handle in self._receive(min(_BATCH, self._options.workers - len(running))):
                task = self._task(body, handle)
                if task is not None:
                    yield task
            yield None

    def done(self, task: Task, outcome: Outcome) -> None:
        self._remember(outcome.names)
        if outcome.whole:
            self._held[task.key].names = outcome.names
        elif outcome.failure is not None:
            del self._held[task.key]  # the message appears again after its visibility timeout

    def maintain(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_round:
            self._next_round = now + _ROUND
            self._delete([key for key, held in self._held.items() if self._is_safe(held)])
            due = [key for key, held in self._held.items() if now >= held.extend_at]
            self._extend(due, self._options.visibility_timeout)

    def release(self) -> None:
        self._delete([key for key, held in self._held.items() if self._is_safe(held)])
        self._extend([key for key, held in self._held.items() if held.names is None], 0)

    def _receive(self, most: int) -> list[tuple[str, str]]:
        """Return the body and the receipt of each message that is received."""
        with translated(self._options.queue_url or "", "sqs:ReceiveMessage"):
            answer = self._client.receive_message(
                QueueUrl=self._options.queue_url,
                MaxNumberOfMessages=most,
                VisibilityTimeout=self._options.visibility_timeout,
                WaitTimeSeconds=_ROUND if self._held else self._options.wait,
            )
            return [(each["Body"], each["ReceiptHandle"]) for each in answer.get("Messages", ())]

    def _task(self, body: str, handle: str) -> Task | None:
        """Return the task of a message; None if it names no object to read."""
        try:
            refs = tuple(ref for ref in objects_of(body) if self._is_wanted(ref.key))
        except NotificationError as error:
            self._reader.report(
                S3Error(f"{self._options.queue_url}: left a message to the queue's redrive policy: {error}")
            )
            return None
        self._number += 1
        key = str(self._number)
        half = self._options.visibility_timeout / 2
        self._held[key] = _Held(handle, self._clock.monotonic() + half, None if refs else ())
        return Task(key, refs) if refs else None

    def _is_wanted(self, key: str) -> bool:
        return key.startswith(self._options.prefix) and self._keys.accepts(key)

    def _is_safe(self, held: _Held) -> bool:
        return held.names is not None and all(self._outlet.safe_end(name) >= WHOLE for name in held.names)

    def _remember(self, names: Sequence[str]) -> None:
        for name in names:
            self._known.pop(name, None)
            self._known[name] = None
        while len(self._known) > _MOST_KNOWN:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._outlet.forget(oldest)

    def _delete(self, keys: Sequence[str]) -> None:
        for some in _tens(keys):
            entries = [{"Id": key, "ReceiptHandle": self._held.pop(key).handle} for key in some]
            with translated(self._options.queue_url or "", "sqs:DeleteMessage"):
                answer = self._client.delete_message_batch(QueueUrl=self._options.queue_url, Entries=entries)
            self._report_failed(answer, "deleted")

    def _extend(self, keys: Sequence[str], seconds: int) -> None:
        for some in _tens(keys):
            entries = []
            for key in some:
                self._held[key].extend_at = self._clock.monotonic() + seconds / 2
                entries.append({"Id": key, "ReceiptHandle": self._held[key].handle, "VisibilityTimeout": seconds})
            with translated(self._options.queue_url or "", "sqs:ChangeMessageVisibility"):
                answer = self._client.change_message_visibility_batch(QueueUrl=self._options.queue_url, Entries=entries)
            self._report_failed(answer, "extended")

    def _report_failed(self, answer: Mapping[str, Any], what: str) -> None:
        for each in answer.get("Failed", ()):
            why = f"{each.get('Code')}: {each.get('Message', '')}"
            self._reader.report(
                S3Error(f"{self._options.queue_url}: a message was not {what}, and appears again: {why}")
            )


def _tens(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[at : at + _BATCH] for at in range(0, len(keys), _BATCH))
