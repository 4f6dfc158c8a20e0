"""SendFuture: the future of a :class:`~producer.model.results.Result`, as ``send`` returns it.

A :class:`SendFuture` is a batch and a position in it. It gets a condition and lists of its own only when a caller uses
it as a ``concurrent.futures.Future``, and only then does the batch refer to it. Its methods need only ``_holder``,
``_position``, ``_callback`` and ``_watch``, so another class with these attributes can share them.

The file is long because each public method has its full reference and an example.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from ..runtime.forks import Stage, call_in_child
from ..runtime.locks import RLock
from ..runtime.loggers import get_logger
from ..text.migration_hints import meant_of_future
from ..text.printable import described
from .errors import InvalidArgumentError, ResultFailedError
from .results import Callback, Result

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_log = get_logger("loghub.futures")


class ResultHolder(Protocol):
    """The batch of a future, as far as the future needs it."""

    @property
    def result(self) -> Result | None:
        """The result; None while the batch is not completed."""

    def wait(self, timeout: float | None) -> None:
        """Return when the batch has a result or was split, or after ``timeout`` seconds; may also return early."""

    def follow(self, position: int) -> tuple[ResultHolder, int] | None:
        """Return the half that has the send at ``position``, and the position there; None if nothing was split."""

    def keep_future(self, position: int, future: SendFuture) -> None:
        """Keep the future of the send at ``position`` alive until its callbacks and waiters are notified."""


_DoneCallback = Callable[[Future[Result]], object]


class _Watch:
    """State of a future that is used as one of ``concurrent.futures``; small, since every future may get it."""

    __slots__ = ("callbacks", "condition", "finished", "process", "waiters")

    def __init__(self) -> None:
        self.process = _process
        # concurrent.futures relies on a state that changes under the condition, together with the notification of
        # waiters. The holder's result is set a moment earlier.
        self.finished = False
        self.callbacks: tuple[_DoneCallback, ...] = ()
        self.waiters: list[Any] | None = None
        # Created when concurrent.futures asks for it: it takes the conditions of several futures, in the order of their
        # ids.
        self.condition: threading.Condition | None = None


# Guards the creation and the fields of every _Watch. Taken last, after a watch's own condition, and only briefly.
_watching = RLock()
# Tells a _Watch of this process from one that was inherited by a fork.
_process = object()


def renew_locks_in_child() -> None:
    """Replace the lock and invalidate every _Watch after a fork: a thread of the parent may have held them."""
    global _watching, _process  # a fork is process-wide
    _watching, _process = RLock(), object()


call_in_child(renew_locks_in_child, Stage.LOCKS)


class SendFuture(Future[Result]):
    """The outcome of one ``send``: a ``concurrent.futures.Future`` that can also be awaited.

    ``result()`` returns a successful :class:`Result` or raises :class:`ResultFailedError`, which carries the failed
    result. An accepted record cannot be recalled: :meth:`cancel` always returns False. Cancelling a task that awaits
    the future does not stop the delivery.

    In asyncio, pass the future to ``await``, ``wait``, ``gather``, ``shield``, ``wait_for`` or ``ensure_future``. Pass
    :meth:`outcome` where a coroutine is needed: ``create_task`` and ``TaskGroup.create_task``.

    Example:

        >>> future = stream.send({"level": "INFO"}, urgent=True)
        >>> result = future.result(timeout=10)
        >>> result.successful, result.attempt_count
        (True, 1)
    """

    # The batch holds the state. The attributes of the base class are never created. The three that
    # concurrent.futures.wait, as_completed and asyncio use are properties over _holder and _watch.
    __slots__ = ("_holder", "_position")

    # The holder is replaced after the position, so a reader of both reads the holder first.
    _holder: ResultHolder
    _position: int
    #: The callback of the send, until a holder has it.
    _callback: Callback | None = None
    # Most futures never get one. It is stored in the instance dictionary, which the base class has anyway.
    _watch: _Watch | None = None

    def __init__(self, holder: ResultHolder, position: int = 0) -> None:
        self._holder = holder
        self._position = position

    def __repr__(self) -> str:
        result = _holder_of(self).result
        state = "pending" if result is None else "delivered" if result.successful else f"failed: {result.error_code}"
        return f"<SendFuture {state}>"

    def cancel(self) -> bool:
        """Return False: an accepted record is delivered or fails, and is never recalled.

        Example:

            >>> stream.send({"level": "INFO"}).cancel()
            False
        """
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def running(self) -> bool:
        """Return False: the record cannot be withdrawn at any time."""
        return False

    @property
    def stored(self) -> bool:
        """True if the record is on the disk of the producer's channel, and survives a crash of the machine.

        The channel's sync policy decides when: at once, a moment later, or only after ``Channel.sync``. Without a
        channel it is never True.

        Example:

            >>> stream.send({"level": "INFO"}).stored
            False
        """
        return False

    def done(self) -> bool:
        """Return True if the record was delivered or has failed.

        Example:

            >>> future = stream.send({"level": "INFO"})
            >>> producer.flush()
            >>> future.done()
            True
        """
        return _holder_of(self).result is not None

    def result(self, timeout: float | None = None) -> Result:
        """Wait until the record is completed, and return its result.

        Example:

            >>> from loghub import ResultFailedError
            >>> future = stream.send({"level": "INFO"}, urgent=True)
            >>> try:
            ...     request_id = future.result(timeout=10).request_id
            ... except ResultFailedError as error:
            ...     print("failed:", error.result.error_code)

        :param timeout: seconds; None to wait forever.
        :returns: the result of a delivered record.
        :raises ResultFailedError: the record was not delivered.
        :raises TimeoutError: not completed within ``timeout``; the delivery continues.
        """
        result = self._holder.result or _wait(self, timeout)
        if not result.successful:
            raise ResultFailedError(result)
        return result

    def exception(self, timeout: float | None = None) -> ResultFailedError | None:
        """Wait until the record is completed, and return its error; None if it was delivered.

        Example:

            >>> future = stream.send({"level": "INFO"}, urgent=True)
            >>> future.exception(timeout=10) is None
            True

        :param timeout: seconds; None to wait forever.
        :returns: the error, which carries the failed result; None on success.
        :raises TimeoutError: not completed within ``timeout``; the delivery continues.
        """
        result = _wait(self, timeout)
        return None if result.successful else ResultFailedError(result)

    def add_done_callback(self, fn: _DoneCallback) -> None:
        """Call ``fn(future)`` once: when the record is completed, or at once if it is.

        A function added in a coroutine is called on its event loop, as asyncio promises. Any other function is called
        on a handler thread, and so is one whose loop has been closed. An exception in it is logged.

        Example:

            >>> done = []
            >>> stream.send({"level": "INFO"}).add_done_callback(done.append)
            >>> producer.flush()
            >>> done[0].result().successful
            True

        :param fn: the function to call.
        """
        self._holder.keep_future(self._position, self)
        loop = _running_loop()
        if _watch_with(self, fn if loop is None else _InLoop(loop, fn)):
            return
        try:
            fn(self)
        except Exception:  # noqa: BLE001  # whatever a user's code raises
            _log.exception("a done-callback raised; the outcome of the record is unchanged")

    def remove_done_callback(self, fn: _DoneCallback) -> int:
        """Remove a function that :meth:`add_done_callback` added and that was not called yet.

        Example:

            >>> future = stream.send({"level": "INFO"})
            >>> future.add_done_callback(print)
            >>> future.remove_done_callback(print)
            1

        :param fn: the function to remove.
        :returns: how many times it had been added.
        """
        with _watching:
            watch = self._watch
            if watch is None or watch.process is not _process:
                return 0
            kept = tuple(one for one in watch.callbacks if (one.fn if isinstance(one, _InLoop) else one) != fn)
            removed, watch.callbacks = len(watch.callbacks) - len(kept), kept
        return removed

    def __await__(self) -> Generator[Any, None, Result]:
        from asyncio import wrap_future  # noqa: PLC0415  # most programs have no loop, and asyncio is large

        return wrap_future(self).__await__()

    async def outcome(self) -> Result:
        """Wait as ``await`` of the future does; a coroutine, for ``asyncio.create_task`` and task groups.

        Example:

            >>> import asyncio
            >>> async def main():
            ...     task = asyncio.create_task(stream.send({"level": "INFO"}, urgent=True).outcome())
            ...     return await task
            ...
            >>> asyncio.run(main()).successful
            True

        :returns: the result of a delivered record.
        :raises ResultFailedError: the record was not delivered.
        """
        return await self

    if not TYPE_CHECKING:  # else mypy accepts any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the method that was probably meant."""
            raise missing(name)

    @property
    def _state(self) -> str:  # type: ignore[override]  # the base class has an attribute
        watch = self._watch
        own = watch is not None and watch.process is _process
        finished = watch.finished if watch is not None and own else _holder_of(self).result is not None
        return "FINISHED" if finished else "PENDING"

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # likewise
        self._holder.keep_future(self._position, self)
        with _watching:
            watch = _watched(self)
            if watch.condition is None:
                watch.condition = threading.Condition()
            return watch.condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]  # likewise
        self._holder.keep_future(self._position, self)
        with _watching:
            watch = _watched(self)
            if watch.waiters is None:
                watch.waiters = []
            return watch.waiters


def missing(name: str) -> AttributeError:
    """Build the error for an attribute that a future does not have."""
    # Libraries probe for private names: suggest nothing for those.
    known = [] if name.startswith("_") else [each for each in dir(SendFuture) if each[0] != "_"]
    # With ``name`` given, Python suggests no private name of its own.
    return AttributeError(meant_of_future(name, known), name=name)


def holder_of(holder: ResultHolder, position: int) -> ResultHolder:
    """Return the holder of the send that was at ``position`` of ``holder``, through all splits."""
    while (at := holder.follow(position)) is not None:
        holder, position = at
    return holder


def _holder_of(future: SendFuture) -> ResultHolder:
    return holder_of(future._holder, future._position)


def _wait(future: SendFuture, timeout: float | None) -> Result:
    if timeout is not None and not isinstance(timeout, int | float):
        raise InvalidArgumentError(f"timeout: must be None or seconds, got {described(timeout)}")
    end = None if timeout is None else time.monotonic() + timeout
    while (result := (holder := _holder_of(future)).result) is None:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(f"not completed within {timeout} s; the delivery goes on{_trouble(holder)}")
        holder.wait(left)
    return result


def _trouble(holder: ResultHolder) -> str:
    """Describe the last attempt; an empty text if there was none."""
    attempts = getattr(getattr(holder, "history", None), "attempts", ())
    return f" (the last attempt: {attempts[-1].error_code}: {attempts[-1].error_message})" if attempts else ""


def _watch_with(future: SendFuture, callback: _DoneCallback) -> bool:
    """Add a callback; return False if the future is finished."""
    with _watching:
        watch = _watched(future)
        if not watch.finished:
            watch.callbacks = (*watch.callbacks, callback)
        return not watch.finished


def _watched(future: SendFuture) -> _Watch:
    with _watching:
        if future._watch is None or future._watch.process is not _process:
            # Create the watch first, then read the result. settle_future does it in the opposite order, so one of the
            # two always sees the other.
            watch = future._watch = _Watch()
            watch.finished = watch.finished or _holder_of(future).result is not None
        return future._watch


class _InLoop:
    """A done-callback that runs on an event loop."""

    __slots__ = ("_loop", "fn")

    def __init__(self, loop: AbstractEventLoop, fn: _DoneCallback) -> None:
        self._loop = loop
        self.fn = fn

    def __call__(self, future: Future[Result]) -> None:
        try:
            self._loop.call_soon_threadsafe(self.fn, future)
        except RuntimeError:  # the loop is closed and will never call it
            self.fn(future)


def _running_loop() -> AbstractEventLoop | None:
    """Return the event loop that runs on this thread; None if there is none."""
    events = sys.modules.get("asyncio.events")
    return None if events is None else events._get_running_loop()


def settle_future(future: SendFuture, result: Result) -> list[Callable[[], object]]:
    """Wake the threads that wait for ``future``; the handler thread calls it once, after the holder has its result.

    :returns: the user code to run next: done-callbacks, then the callback of ``send``.
    """
    due: list[Callable[[], object]] = []
    # The holder's result was set before this read of _watch: a later watch reads the result itself.
    watch = future._watch
    if watch is not None:
        with _watching:
            condition = watch.condition
            callbacks = _finish(watch) if condition is None else ()
        if condition is not None:
            with condition:
                for waiter in () if watch.finished else watch.waiters or ():
                    (waiter.add_result if result.successful else waiter.add_exception)(future)
                with _watching:
                    callbacks = _finish(watch)
                condition.notify_all()
        due.extend(_call(fn, future) for fn in callbacks)
    callback = future._callback
    if callback is not None:
        future._callback = None
        due.append(_call(callback, result))
    return due


def _finish(watch: _Watch) -> tuple[_DoneCallback, ...]:
    watch.finished = True
    callbacks, watch.callbacks = watch.callbacks, ()
    return callbacks


def _call(fn: Callable[[Any], object], argument: object) -> Callable[[], object]:
    """Return a call of ``fn``; a ``partial`` would raise here, and not when called, if ``fn`` is not callable."""
    return lambda: fn(argument)
