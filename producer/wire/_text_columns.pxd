# cython: language_level=3
"""Helpers of the native parsers: make columns of text from the fields found in lines."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy


cdef struct Span:
    # The start of a field in the data, and its size; -1 if it is null.
    int32_t start
    int32_t size


cdef inline object text_column(kind, const uint8_t* data, const Span* spans, Py_ssize_t rows, Py_ssize_t apart):
    """Make a column.

    :param kind: the class ``TextColumn``; -1 as an unsigned 32-bit number is ``ABSENT``.
    :param apart: the distance between the spans of two rows.
    """
    cdef bytes sizes = PyBytes_FromStringAndSize(NULL, rows * 4)
    cdef int32_t* each = <int32_t*> PyBytes_AS_STRING(sizes)
    cdef Py_ssize_t row, size = 0
    cdef const Span* span = spans
    cdef bytes values
    cdef uint8_t* at
    with nogil:
        for row in range(rows):
            each[row] = max(span.size, -1)
            size += max(span.size, 0)
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
    return kind(sizes, values)
