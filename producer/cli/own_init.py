"""Process 1 of a container: a process that does nothing but collect what has ended.

The kernel makes process 1 the parent of every orphan, which stays a zombie until its parent collects it. A container
seldom has an init, and commands of a source ``exec`` leave orphans. So where the agent would be process 1, it is a
child of that process instead, which passes signals on to it and ends with its status.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

#: What is passed on: all that containers and people send to end, reload or dump it.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def leave_process_1() -> None:
    """Go on in a child if this is process 1; nothing otherwise. Called before any thread is started."""
    if os.getpid() == 1:
        go_on_in_child()


def go_on_in_child() -> None:
    """Return in a child of this process, which collects its children until that one ends, and ends as it did."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # none comes before there is a child to pass it on to
    child = os.fork()
    if child:
        _collect_until_end(child)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)


def _collect_until_end(child: int) -> None:
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
