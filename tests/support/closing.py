"""A close that is interrupted at every place where a handler of signals may raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from producer import CloseTimeoutError, Result, SendFuture
from producer.model.results import Callback
from producer.pipeline.pipeline import Pipeline
from producer.pipeline.shutdown import Shutdown
from tests.channels.interrupts import interrupted_everywhere
from tests.support.pipelines import KEY, record
from tests.support.waiting import PATIENCE, eventually

#: Of :meth:`Pipeline.accept`.
Accept = Callable[..., SendFuture]


def sent(pipeline: Pipeline, accept: Accept, callback: Callback) -> list[SendFuture]:
    """Three records of three streams are accepted, and the handlers' threads run."""
    for handler in pipeline.settlement.handlers:
        handler.thread.start()
    return [accept(KEY._replace(topic=str(i)), record(), 1, callback) for i in range(3)]


def each_is_told_once(opened: Callable[[Callback], tuple[Shutdown, Sequence[SendFuture]]], at_least: int) -> None:
    """Wherever the first close, whose time is over at once, is interrupted: the next one ends, and every record has a
    result that its callback was told of once.

    :param opened: makes what is closed, with the futures of three sends with this callback.
    """

    def scenario() -> Any:
        told = list[Result]()
        shutdown, futures = opened(told.append)

        def close() -> None:
            with suppress(CloseTimeoutError):
                shutdown.close(0.0)

        def check(_interrupted: bool) -> None:
            shutdown.close(PATIENCE)
            eventually(lambda: len(told) == len(futures))
            assert all(future.done() for future in futures)
            assert shutdown._pipeline.budget.usage() == (0, 0)

        return close, check

    interrupted_everywhere(scenario, at_least)
