# cython: language_level=3
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

# Of more fields none is encoded here; no number has more characters.
cdef enum:
    MOST_FIELDS = 256
    LONGEST_NUMBER = 26


cdef struct Part:
    # A name or a value. `text` is a str that has to be encoded; NULL if `data` is what travels.
    const uint8_t* data
    size_t size
    PyObject* text


cdef struct Pair:
    Part name
    Part value
    size_t content


cdef struct Log:
    # The fields of a log, borrowed from a dict that nobody changes meanwhile, and their size, bytes.
    Pair pairs[MOST_FIELDS]
    Py_ssize_t count
    size_t size
    uint8_t numbers[MOST_FIELDS * LONGEST_NUMBER]
    size_t used


cdef bint scan(PyObject* log, Log* out) noexcept
cdef struct Moment:
    # When a log was made: seconds since the epoch, and nanoseconds within that second, 0 for a log without them.
    size_t seconds
    size_t nanos


cdef size_t log_size(const Log* log, Moment time) noexcept nogil
cdef uint8_t* put_record(uint8_t* at, const Log* log, Moment time) noexcept
cdef object simplified(dict log, fallback)
cdef Moment moment_of(item, Moment now) except *
