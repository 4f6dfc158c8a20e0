"""Calls on daemon threads, for callers that must be able to stop waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def on_daemon_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Start ``call`` on a daemon thread of its own, and return its future, which cannot be cancelled.

    :param name: the name of the thread.
    :raises RuntimeError: no thread could be started.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=fulfil, args=(future, call), name=name, daemon=True).start()
    return future


def fulfil(future: Future[T], call: Callable[[], T]) -> None:
    """Make a call, and set its result or its error in the future."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # raised where the future is waited for
        future.set_exception(error)
