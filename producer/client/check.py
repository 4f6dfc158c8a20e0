"""Calls to a server with a time limit that also covers name resolution."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait

from ..model.errors import ProducerError, TargetError
from ..runtime.daemon_threads import on_daemon_thread


def in_time(ask: Callable[[], str], timeout: float, name: str) -> str:
    """Run ``ask`` on a thread of its own, and return its result or raise its error.

    A resolver may take longer than the limit, and cannot be interrupted.

    :param timeout: seconds. The thread ends a moment later, or when the resolver returns.
    :param name: the name of the thread.
    :raises TargetError: no result within ``timeout``.
    """
    answer = on_daemon_thread(ask, name)
    if not wait((answer,), timeout + _GRACE).done:
        words = f"no answer within {timeout:g} s: check the host name and the name resolution of this machine"
        raise TargetError("endpoint", words)
    try:
        return answer.result()
    except ProducerError:
        raise
    except Exception as error:  # a sink may be user code
        raise TargetError("endpoint", f"the sink could not ask: {type(error).__name__}: {error}") from error


# Added to the timeout, seconds: the request has the same limit, and its error says more.
_GRACE = 0.2
