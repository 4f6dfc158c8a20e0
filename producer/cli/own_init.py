"""The init of a container without one: process 1 reaps its children and passes signals on.

The kernel makes process 1 the parent of every orphan, which stays a zombie until its parent reaps it. A container
seldom has an init, and commands of a source ``exec`` leave orphans. So where the agent would be process 1, it runs in a
child. Process 1 passes signals on to the child and ends with the child's status.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

#: The signals that process 1 passes on: those that end, reload or dump the agent.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def leave_process_1() -> None:
    """Continue in a child if this is process 1. The caller has started no thread."""
    if os.getpid() == 1:
        continue_in_child()


def continue_in_child() -> None:
    """Return in a child. This process reaps its children until that child ends, and ends with its status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # none is handled before the child exists
    child = os.fork()
    if child:
        _reap_until_end(child)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)


def _reap_until_end(child: int) -> None:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
