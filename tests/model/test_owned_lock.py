"""The lock of what users call."""

import threading

import pytest

from producer.model.errors import ProducerError
from producer.model.owned_lock import OwnedLock


def test_thread_that_holds_the_lock_is_refused_and_others_wait() -> None:
    """A second ``with`` on the same thread raises at once; another thread gets the lock after its release."""
    lock, entered = OwnedLock(), threading.Event()

    def take() -> None:
        with lock:
            entered.set()

    other = threading.Thread(target=take)
    with lock:
        other.start()
        with pytest.raises(ProducerError, match="interrupted a call of the producer"), lock:
            pass
        assert not entered.is_set()
    other.join(60)
    assert entered.is_set()
    with lock:  # refused once, it is free again
        pass
