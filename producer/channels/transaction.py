"""BaseTransaction: the states of a transaction, the same for every channel.

::

    NEW ──begin──► OPEN ──commit──► COMPLETED ──close──► CLOSED
     │               └───rollback──►    │                  ▲
     └──────────────────close──────────────────────────────┘

A ``commit`` that raises leaves the transaction OPEN: it may be retried or rolled back. A ``rollback`` takes effect even
if it raises. Any other order raises :class:`~producer.model.errors.TransactionStateError`.
"""

from __future__ import annotations

import enum
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from ..model.errors import InvalidArgumentError, TransactionStateError
from ..model.interfaces import Event, Stored
from ..runtime.locks import Lock
from ..text.printable import described


class TransactionState(enum.Enum):
    """State of a transaction."""

    NEW = "new"
    OPEN = "open"
    COMPLETED = "completed"
    CLOSED = "closed"

    # The default hash of an enum is computed in Python from its name; this one is faster.
    __hash__ = object.__hash__


#: Module globals: in Python 3.11 access through the enum class costs a call.
NEW, OPEN, COMPLETED, CLOSED = TransactionState

#: Permitted next states of each state.
TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    NEW: frozenset({OPEN, CLOSED}),
    OPEN: frozenset({COMPLETED}),
    COMPLETED: frozenset({CLOSED}),
    CLOSED: frozenset(),
}


class BaseTransaction(ABC):
    """The states of a transaction, and the calls permitted in each.

    A channel implements the ``_do`` methods, which are called in state OPEN only.

    :param channel: the channel's name, for messages.
    """

    state: TransactionState = NEW
    _ending: int | None = None  # id of the committing thread; set under _state_lock
    _last_sequence: int | None = None

    def __init__(self, channel: str) -> None:
        self._channel_name = channel
        self._state_lock = Lock()  # guards state

    @property
    def last_sequence(self) -> int | None:
        return self._last_sequence

    def begin(self) -> None:
        """Open the transaction.

        :raises TransactionStateError: it was begun before.
        """
        with self._state_lock:
            if self.state is not NEW:
                raise self._wrong_order("begin")
            self.state = OPEN

    def put(self, event: Event) -> None:
        self.put_many((event,))

    def put_many(self, events: Iterable[Event]) -> None:
        if self.state is not OPEN:
            raise self._wrong_order("put")
        self._do_put(events if isinstance(events, list | tuple) else list(events))

    def take(self, count: int = 1, *, max_bytes: int | None = None, timeout: float | None = None) -> list[Event]:
        if self.state is not OPEN:
            raise self._wrong_order("take")
        if count.__class__ is not int or count < 1:
            _check_number("count", count)
        if max_bytes is not None:
            _check_number("max_bytes", max_bytes)
        return self._do_take(count, max_bytes, timeout)

    def acknowledge(self, events: Sequence[Event]) -> None:
        self._check_open("acknowledge")
        self._do_acknowledge(events)

    def give_back(self, events: Sequence[Event]) -> None:
        self._check_open("give_back")
        self._do_give_back(events)

    def commit(self, timeout: float | None = None) -> Stored:
        self._end_alone("commit")
        try:
            stored = self._do_commit(timeout)
            self._have_committed()
        finally:
            self._ending = None
        return stored

    def rollback(self) -> None:
        """Undo the puts and takes.

        :raises TransactionStateError: another thread is committing it, or has committed it.
        """
        with self._state_lock:
            self._check_alone("rollback")
            self.state = COMPLETED
        self._do_rollback()

    def _end_alone(self, call: str) -> None:
        """Reserve the end of the transaction for this thread; other threads that try are refused."""
        with self._state_lock:
            self._check_alone(call)
            self._ending = threading.get_ident()

    def _check_alone(self, call: str) -> None:
        if self._ending is not None and self._ending != threading.get_ident():
            raise TransactionStateError(self._channel_name, f"{call}() while another thread commits the transaction")
        self._check_open(call)

    def _have_committed(self) -> None:
        """Record the commit, unless another thread has ended the transaction meanwhile."""
        with self._state_lock:
            if self.state is OPEN:
                self.state = COMPLETED

    def close(self) -> None:
        """Close the transaction.

        :raises TransactionStateError: it is open: commit or roll back first.
        """
        self._move(CLOSED, "close")

    def __enter__(self) -> Self:
        with self._state_lock:  # begin(), inlined
            if self.state is not NEW:
                raise self._wrong_order("begin")
            self.state = OPEN
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.state is OPEN and kind is None:
                self._commit_at_end()
        finally:
            try:
                if self.state is OPEN:
                    with suppress(TransactionStateError):  # a commit that raised has committed
                        self.rollback()
            finally:
                if self.state is COMPLETED:
                    self.close()

    def _commit_at_end(self) -> None:
        """Commit at the end of a ``with`` block; may also close the transaction."""
        self.commit()

    def _check_open(self, call: str) -> None:
        if self.state is not OPEN:
            raise self._wrong_order(call)

    def _move(self, to: TransactionState, call: str) -> None:
        with self._state_lock:
            if to not in TRANSITIONS[self.state]:
                raise self._wrong_order(call)
            self.state = to

    def _wrong_order(self, call: str) -> TransactionStateError:
        advice = {
            NEW: "begin it first, or use it as a context manager",
            OPEN: "commit or roll back first",
            COMPLETED: "it was committed or rolled back: make a new one",
            CLOSED: "make a new one",
        }[self.state]
        return TransactionStateError(
            self._channel_name, f"{call}() on a transaction that is {self.state.value}: {advice}"
        )

    @abstractmethod
    def _do_put(self, events: Sequence[Event]) -> None: ...

    @abstractmethod
    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]: ...

    @abstractmethod
    def _do_acknowledge(self, events: Sequence[Event]) -> None: ...

    @abstractmethod
    def _do_give_back(self, events: Sequence[Event]) -> None: ...

    @abstractmethod
    def _do_commit(self, timeout: float | None) -> Stored: ...

    @abstractmethod
    def _do_rollback(self) -> None: ...


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"take: {name} must be a whole number, at least 1, got {described(value)}")
