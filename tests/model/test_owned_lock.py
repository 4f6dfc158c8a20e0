"""OwnedLock refuses its owner."""

import threading

import pytest

from producer.model.errors import ProducerError
from producer.model.owned_lock import OwnedLock


def test_thread_that_holds_the_lock_is_refused_and_others_wait() -> None:
    """A second ``with`` on the same thread raises; other threads wait."""
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
    with lock:  # free again after the refusal
        pass
