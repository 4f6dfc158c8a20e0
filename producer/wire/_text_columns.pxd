# cython: language_level=3
"""What the compiled parsers share: fields found in lines become columns of text."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memset


cdef struct Span:
    # Where a field begins in the data, and how long it is; -1 if it is null.
    int32_t start
    int32_t size


cdef inline tuple text_column(const uint8_t* data, const Span* spans, Py_ssize_t rows, Py_ssize_t apart):
    """The buffers of a column: validity, offsets and bytes.

    :param apart: how many spans there are from one row's to the next row's.
    """
    cdef bytes validity = PyBytes_FromStringAndSize(NULL, (rows + 7) // 8)
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4)
    cdef uint8_t* bits = <uint8_t*> PyBytes_AS_STRING(validity)
    cdef int32_t* ends = <int32_t*> PyBytes_AS_STRING(offsets)
    cdef int32_t size = 0
    cdef Py_ssize_t row
    cdef const Span* span = spans
    cdef bytes values
    cdef uint8_t* at
    with nogil:
        memset(bits, 0, (rows + 7) // 8)
        ends[0] = 0
        for row in range(rows):
            if span.size >= 0:
                bits[row >> 3] |= <uint8_t> (1 << (row & 7))
                size += span.size
            ends[row + 1] = size
            span += apart
    values = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t*> PyBytes_AS_STRING(values)
    with nogil:
        span = spans
        for row in range(rows):
            if span.size > 0:
                memcpy(at, data + span.start, span.size)
                at += span.size
            span += apart
    return validity, offsets, values
