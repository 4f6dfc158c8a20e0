"""What ``send`` returns: the future of a :class:`~producer.model.results.Result`.

A :class:`SendFuture` is a batch and a position
in it until somebody waits on it in the manner of ``concurrent.futures``; only then does it grow a condition and lists
of its own, and only then does the batch know of it. Its methods need nothing of it but ``_holder``, ``_position``,
``_callback`` and ``_watch``, so that another class with these can share them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from ..runtime.forks import Stage, call_in_child
from ..runtime.loggers import get_logger
from ..text.migration_hints import meant_of_future
from ..text.printable import described
from .errors import InvalidArgumentError, ResultFailedError
from .results import Callback, Result

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_log = get_logger("loghub.futures")


class ResultHolder(Protocol):
    """What a future needs of the batch that it belongs to."""

    @property
    def result(self) -> Result | None:
        """The result, or None as long as there is none."""

    def wait(self, timeout: float | None) -> None:
        """Return when the batch has a result or was split, or after ``timeout`` seconds; for no reason too."""

    def follow(self, position: int) -> tuple[ResultHolder, int] | None:
        """Who gives the result of the send at ``position``, and its position there, since it was cut; None if this one
        does.
        """

    def heed(self, position: int, future: SendFuture) -> None:
        """Somebody is to be told of the result of the send at ``position``, so that its future must live until then."""


_DoneCallback = Callable[[Future[Result]], object]


class _Watch:
    """What a future grows when somebody treats it as one of ``concurrent.futures``; small, since all of them may."""

    __slots__ = ("callbacks", "condition", "finished", "process", "waiters")

    def __init__(self) -> None:
        self.process = _process
        # concurrent.futures counts on a state that changes under the condition, together with what waiters are told;
        # the holder's result is there a moment earlier.
        self.finished = False
        self.callbacks: tuple[_DoneCallback, ...] = ()
        self.waiters: list[Any] | None = None
        # One of its own, once concurrent.futures asks for it: that takes those of several futures, of other kinds too,
        # in the order of their ids.
        self.condition: threading.Condition | None = None


# Guards every _Watch, and its birth; taken last, after a watch's own condition, and only for a moment.
_watching = threading.RLock()
# Tells a _Watch of this process from one that came along with a fork.
_process = object()


def renew_locks_in_child() -> None:
    """Replace the module's lock after a fork: a thread of the parent may have held it. Likewise every _Watch."""
    global _watching, _process  # a fork is process-wide
    _watching, _process = threading.RLock(), object()


call_in_child(renew_locks_in_child, Stage.LOCKS)


class SendFuture(Future[Result]):
    """The outcome of one ``send``: a ``concurrent.futures.Future`` that can also be awaited.

    ``result()`` returns a successful :class:`Result` or raises :class:`ResultFailedError`, which carries the failed
    one. An accepted record cannot be recalled: :meth:`cancel` always returns False, and cancelling a task that awaits
    the future leaves the delivery as it is.

    In asyncio ``await``, ``wait``, ``gather``, ``shield``, ``wait_for`` and ``ensure_future`` take it as it is;
    ``create_task``, which wants a coroutine, and that of a ``TaskGroup`` take :meth:`outcome`.
    """

    # The batch holds the state; the attributes of the base class are never created, and the three of them that
    # concurrent.futures.wait, as_completed and asyncio work with are properties over _holder and _watch.
    __slots__ = ("_holder", "_position")

    # Where the holder changes, it does so behind the position; who reads both reads the holder first.
    _holder: ResultHolder
    _position: int
    #: Of the send, for as long as no holder has it.
    _callback: Callback | None = None
    # Most never get one: it then goes to the dictionary that the base class has anyway.
    _watch: _Watch | None = None

    def __init__(self, holder: ResultHolder, position: int = 0) -> None:
        self._holder = holder
        self._position = position

    def __repr__(self) -> str:
        result = _holder_of(self).result
        state = "pending" if result is None else "delivered" if result.successful else f"failed: {result.error_code}"
        return f"<SendFuture {state}>"

    def cancel(self) -> bool:
        """Always False: what was accepted is delivered or failed, never recalled."""
        return False

    def cancelled(self) -> bool:
        """Always False."""
        return False

    def running(self) -> bool:
        """Always False: there is no moment at which a record could still be withdrawn."""
        return False

    @property
    def stored(self) -> bool:
        """Whether the record has reached the disk, so that it survives the machine: by the policy of the producer's
        channel at once, a moment later, or only after ``Channel.sync``; without a channel it never does.
        """
        return False

    def done(self) -> bool:
        """Whether the record is settled."""
        return _holder_of(self).result is not None

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the outcome.

        :param timeout: seconds; None waits for ever.
        :raises ResultFailedError: the record was not delivered.
        :raises TimeoutError: not settled within ``timeout``; the delivery goes on.
        """
        result = self._holder.result or _wait(self, timeout)
        if not result.successful:
            raise ResultFailedError(result)
        return result

    def exception(self, timeout: float | None = None) -> ResultFailedError | None:
        """As :meth:`result`, but returns the :class:`ResultFailedError`, or None on success."""
        result = _wait(self, timeout)
        return None if result.successful else ResultFailedError(result)

    def add_done_callback(self, fn: _DoneCallback) -> None:
        """Call ``fn(future)`` once: when the record settles, or now if it has settled.

        What is added in a coroutine is called on its event loop, as asyncio promises; what is added elsewhere, on a
        handler thread, likewise if the loop has been closed meanwhile. An exception in it is logged and stops nothing.
        """
        self._holder.heed(self._position, self)
        loop = _running_loop()
        if _watch_with(self, fn if loop is None else _InLoop(loop, fn)):
            return
        try:
            fn(self)
        except Exception:  # noqa: BLE001  # whatever a user's code raises
            _log.exception("a done-callback raised; the record is settled all the same")

    def remove_done_callback(self, fn: _DoneCallback) -> int:
        """Take back what was given to :meth:`add_done_callback` and not called yet; how often it was there."""
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
        """As ``await`` of the future itself; a coroutine, for ``asyncio.create_task`` and groups of tasks.

        :raises ResultFailedError: the record was not delivered.
        """
        return await self

    if not TYPE_CHECKING:  # mypy would take it for every attribute there could be

        def __getattr__(self, name: str) -> Any:
            """Say which method is meant by one that people know from other futures."""
            raise missing(name)

    @property
    def _state(self) -> str:  # type: ignore[override]  # the base class has an attribute
        watch = self._watch
        own = watch is not None and watch.process is _process
        finished = watch.finished if watch is not None and own else _holder_of(self).result is not None
        return "FINISHED" if finished else "PENDING"

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # likewise
        self._holder.heed(self._position, self)
        with _watching:
            watch = _watched(self)
            if watch.condition is None:
                watch.condition = threading.Condition()
            return watch.condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]  # likewise
        self._holder.heed(self._position, self)
        with _watching:
            watch = _watched(self)
            if watch.waiters is None:
                watch.waiters = []
            return watch.waiters


def missing(name: str) -> AttributeError:
    """What to raise for an attribute that a future does not have."""
    # Of private ones, for which libraries look, nothing is suggested.
    known = [] if name.startswith("_") else [each for each in dir(SendFuture) if each[0] != "_"]
    # With its name on it, Python adds no private name that it takes to be meant.
    return AttributeError(meant_of_future(name, known), name=name)


def holder_of(holder: ResultHolder, position: int) -> ResultHolder:
    """Who gives the result of the send that was at ``position`` of ``holder``, whatever was cut since."""
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
    """What the last attempt met, if there was one."""
    attempts = getattr(getattr(holder, "history", None), "attempts", ())
    return f" (the last attempt: {attempts[-1].error_code}: {attempts[-1].error_message})" if attempts else ""


def _watch_with(future: SendFuture, callback: _DoneCallback) -> bool:
    """Add a callback; False if it is too late."""
    with _watching:
        watch = _watched(future)
        if not watch.finished:
            watch.callbacks = (*watch.callbacks, callback)
        return not watch.finished


def _watched(future: SendFuture) -> _Watch:
    with _watching:
        if future._watch is None or future._watch.process is not _process:
            # First the watch, then the look at the result: settle_future does it the other way round, so that one of
            # the two sees the other.
            watch = future._watch = _Watch()
            watch.finished = watch.finished or _holder_of(future).result is not None
        return future._watch


class _InLoop:
    """A done-callback that belongs to an event loop."""

    __slots__ = ("_loop", "fn")

    def __init__(self, loop: AbstractEventLoop, fn: _DoneCallback) -> None:
        self._loop = loop
        self.fn = fn

    def __call__(self, future: Future[Result]) -> None:
        try:
            self._loop.call_soon_threadsafe(self.fn, future)
        except RuntimeError:  # it is closed: nobody else will ever call it
            self.fn(future)


def _running_loop() -> AbstractEventLoop | None:
    """The event loop that runs on this thread; None where there is none."""
    events = sys.modules.get("asyncio.events")
    return None if events is None else events._get_running_loop()


def settle_future(future: SendFuture, result: Result) -> list[Callable[[], object]]:
    """Wake whoever waits for ``future``; called once, after its holder got ``result``, by the handler thread.

    :returns: the user's code that is now due, for the caller to run: done-callbacks, then the callback of ``send``.
    """
    due: list[Callable[[], object]] = []
    # The holder's result was set before this look at _watch: a watch born later sees the result by itself.
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
    """``partial`` would raise here, rather than when it is called, for what is not callable."""
    return lambda: fn(argument)
