# cython: language_level=3
"""The native part of ``threads.wait_until_free``: no signal handler runs between taking a lock and releasing it."""

import time


def wait_until_free(lock, double pause):
    """Return when no other thread holds a lock, which is checked every ``pause`` seconds."""
    while not lock.acquire(False):
        time.sleep(pause)
    lock.release()
