# cython: language_level=3
"""The compiled part of ``threads.stand_back``: no handler of a signal runs between taking a lock and letting go of it."""

import time


def wait_until_free(lock, double pause):
    """Return when nobody else holds a lock, which is looked at every ``pause`` seconds."""
    while not lock.acquire(False):
        time.sleep(pause)
    lock.release()
