"""Calls to a server with a time limit that also covers name resolution."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..model.errors import ProducerError, TargetError
from ..runtime.clock import Latch


def in_time(ask: Callable[[], str], timeout: float, name: str) -> str:
    """Run ``ask`` on a thread of its own, and return its result or raise its error.

    A resolver may take longer than the limit, and cannot be interrupted.

    :param timeout: seconds. The thread ends a moment later, or when the resolver returns.
    :param name: the name of the thread.
    :raises TargetError: no result within ``timeout``.
    """
    outcome: list[str | ProducerError] = []
    answered = Latch()

    def run() -> None:
        try:
            outcome.append(ask())
        except ProducerError as error:
            outcome.append(error)
        except Exception as error:  # noqa: BLE001  # a sink may be user code
            outcome.append(TargetError("endpoint", f"the sink could not ask: {type(error).__name__}: {error}"))
        answered.set()

    threading.Thread(target=run, name=name, daemon=True).start()
    if not answered.wait(timeout + _GRACE):
        words = f"no answer within {timeout:g} s: check the host name and the name resolution of this machine"
        raise TargetError("endpoint", words)
    (answer,) = outcome
    if isinstance(answer, str):
        return answer
    raise answer


# Added to the timeout, seconds: the request has the same limit, and its error says more.
_GRACE = 0.2
