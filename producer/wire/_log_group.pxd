# cython: language_level=3
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

# Logs with more fields are not encoded natively. No number has more characters.
cdef enum:
    MOST_FIELDS = 256
    LONGEST_NUMBER = 26


cdef struct Part:
    # A name or a value. `text` is a str to encode; NULL if `data` has the encoded bytes.
    const uint8_t* data
    size_t size
    PyObject* text


cdef struct Pair:
    Part name
    Part value
    size_t content


cdef struct Log:
    # The fields of a log, borrowed from a dict that does not change meanwhile, and their size in bytes.
    Pair pairs[MOST_FIELDS]
    Py_ssize_t count
    size_t size
    uint8_t numbers[MOST_FIELDS * LONGEST_NUMBER]
    size_t used


cdef bint scan(PyObject* log, Log* out) noexcept
cdef struct Moment:
    # The time of a log: seconds since the epoch, and nanoseconds within that second, 0 for none.
    size_t seconds
    size_t nanos


cdef size_t log_size(const Log* log, Moment time) noexcept nogil
cdef uint8_t* put_record(uint8_t* at, const Log* log, Moment time) noexcept
cdef object simplified(dict log, fallback)
cdef Moment moment_of(item, Moment now) except *
