"""A question to a server that is answered in time, whatever the system's resolver of names does."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..model.errors import ProducerError, TargetError
from ..runtime.clock import Latch


def in_time(ask: Callable[[], str], timeout: float, name: str) -> str:
    """What ``ask`` returns, or raises, on a thread of its own: a name may take longer to resolve than anybody waits,
    and nothing ends that.

    :param timeout: seconds; the thread ends a moment after, or when the resolver does.
    :param name: of the thread.
    :raises TargetError: it took longer.
    """
    outcome: list[str | ProducerError] = []
    answered = Latch()

    def run() -> None:
        try:
            outcome.append(ask())
        except ProducerError as error:
            outcome.append(error)
        except Exception as error:  # noqa: BLE001  # a sink is somebody else's class
            outcome.append(TargetError("endpoint", f"the sink could not ask: {type(error).__name__}: {error}"))
        answered.set()

    threading.Thread(target=run, name=name, daemon=True).start()
    if not answered.wait(timeout + _GRACE):
        words = f"no answer within {timeout:g} s: is the host name right, and does the resolver of names answer?"
        raise TargetError("endpoint", words)
    (said,) = outcome
    if isinstance(said, str):
        return said
    raise said


# The request has the same limit, and says more about what it waited for. Seconds.
_GRACE = 0.2
