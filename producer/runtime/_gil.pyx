# cython: language_level=3
"""The compiled part of ``right_of_way.py``, which says what it is for."""

cdef int asking = 0


cdef int* threads_that_ask() noexcept nogil:
    return &asking


def give_way():
    """Let threads that ask for the interpreter have it; whether some did."""
    if not some(&asking):
        return False
    with nogil:
        let_pass(&asking)
    return True


def begin_to_ask():
    """For tests: as a thread that sends, and is about to take the interpreter."""
    ask(&asking)


def end_asking():
    """For tests."""
    have(&asking)


def forget():
    """Nobody asks any more."""
    count(&asking, -asking)
