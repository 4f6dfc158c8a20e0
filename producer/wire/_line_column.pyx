# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of ``line_column.py``, which says what it does."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr, memcpy

from .line_column import LineColumn


def line_column(bytes block not None, Py_ssize_t rows):
    """See the pure twin."""
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, rows * 8)
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4)
    cdef int64_t* begins = <int64_t*> PyBytes_AS_STRING(starts)
    cdef int32_t* bounds = <int32_t*> PyBytes_AS_STRING(offsets)
    cdef const char* data = PyBytes_AS_STRING(block)
    cdef Py_ssize_t size = len(block), row
    cdef bytes text
    cdef char* at
    with nogil:
        divide(data, size, rows, begins, bounds)
    text = PyBytes_FromStringAndSize(NULL, bounds[rows])
    at = PyBytes_AS_STRING(text)
    with nogil:
        for row in range(rows):
            memcpy(at + bounds[row], data + begins[row], bounds[row + 1] - bounds[row])
    return LineColumn(starts, offsets, text)


cdef void divide(
    const char* data, Py_ssize_t size, Py_ssize_t rows, int64_t* begins, int32_t* bounds
) noexcept nogil:
    cdef Py_ssize_t row, begin = 0, end
    cdef const char* found
    bounds[0] = 0
    for row in range(rows):
        found = <const char*> memchr(data + begin, 10, size - begin)
        end = size if found == NULL else found - data
        begins[row] = begin
        bounds[row + 1] = bounds[row] + <int32_t> (end - begin)
        if found != NULL and end > begin and data[end - 1] == 13:
            bounds[row + 1] -= 1
        # Behind the last line, for rows that are not there.
        begin = end + 1 if found != NULL else size
