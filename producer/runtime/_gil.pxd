# cython: language_level=3
"""The right of way, for compiled code; see ``right_of_way.py``.

Who waits for the interpreter does so without it, so that the count needs the processor's own guard. Where the compiler
offers none in this way, nobody asks.
"""

cdef extern from *:
    """
    #if defined(__GNUC__) && !defined(_WIN32)
    #include <time.h>
    static inline void producer_count(int* asking, int more) { __atomic_fetch_add(asking, more, __ATOMIC_RELAXED); }
    static inline int producer_some(const int* asking) { return __atomic_load_n(asking, __ATOMIC_RELAXED) > 0; }
    static inline void producer_pause(long nanos) {
        struct timespec pause = {0, nanos};
        nanosleep(&pause, NULL);
    }
    #else
    static inline void producer_count(int* asking, int more) {}
    static inline int producer_some(const int* asking) { return 0; }
    static inline void producer_pause(long nanos) {}
    #endif
    """
    void count "producer_count" (int* asking, int more) noexcept nogil
    bint some "producer_some" (const int* asking) noexcept nogil
    void pause "producer_pause" (long nanos) noexcept nogil

cdef enum:
    # A pause, and how many at the most.
    NANOS = 50000
    PAUSES = 10


cdef int* threads_that_ask() noexcept nogil


cdef inline void ask(int* asking) noexcept nogil:
    """Before the interpreter is taken again, without it; to be followed by :func:`have` with it."""
    count(asking, 1)


cdef inline void have(int* asking) noexcept nogil:
    count(asking, -1)


cdef inline void let_pass(int* asking) noexcept nogil:
    """Wait while somebody asks, without the interpreter."""
    cdef int number
    for number in range(PAUSES):
        if not some(asking):
            break
        pause(NANOS)
