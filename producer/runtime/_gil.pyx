# cython: language_level=3
"""The native part of ``gil.py``, which describes it."""

cdef int asking = 0


cdef int* threads_that_ask() noexcept nogil:
    return &asking


def give_way():
    """Let threads that need the interpreter lock take it. Return True if there were any."""
    if not some(&asking):
        return False
    with nogil:
        let_pass(&asking)
    return True


def begin_to_ask():
    """Announce, for tests, that a thread needs the interpreter lock."""
    ask(&asking)


def end_asking():
    """End :func:`begin_to_ask`, for tests."""
    have(&asking)


def forget():
    """Forget all requests."""
    count(&asking, -asking)
