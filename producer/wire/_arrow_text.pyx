# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of ``arrow_text.py``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcpy

from .text_column import TextColumn


def line_column(bytes block not None, Py_ssize_t rows):
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, rows * 8)
    cdef bytes sizes = PyBytes_FromStringAndSize(NULL, rows * 4)
    cdef int64_t* begins = <int64_t*> PyBytes_AS_STRING(starts)
    cdef uint32_t* each = <uint32_t*> PyBytes_AS_STRING(sizes)
    cdef const char* data = PyBytes_AS_STRING(block)
    cdef Py_ssize_t size = len(block), row, total
    cdef bytes text
    cdef char* at
    with nogil:
        total = divide(data, size, rows, begins, each)
    text = PyBytes_FromStringAndSize(NULL, total)
    at = PyBytes_AS_STRING(text)
    with nogil:
        for row in range(rows):
            memcpy(at, data + begins[row], each[row])
            at += each[row]
    return starts, TextColumn(sizes, text)


cdef Py_ssize_t divide(
    const char* data, Py_ssize_t size, Py_ssize_t rows, int64_t* begins, uint32_t* sizes
) noexcept nogil:
    """Return the total size of all lines."""
    cdef Py_ssize_t row, begin = 0, end, total = 0
    cdef const char* found
    for row in range(rows):
        found = <const char*> memchr(data + begin, 10, size - begin)
        end = size if found == NULL else found - data
        begins[row], sizes[row] = begin, <uint32_t> (end - begin)
        if found != NULL and end > begin and data[end - 1] == 13:
            sizes[row] -= 1
        total += sizes[row]
        # After the last line, for missing rows.
        begin = end + 1 if found != NULL else size
    return total


def arrow_buffers(column):
    cdef bytes sizes = column.sizes
    cdef Py_ssize_t rows = len(sizes) // 4
    cdef bytes validity = PyBytes_FromStringAndSize(NULL, (rows + 7) // 8)
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4)
    cdef const int32_t* each = <const int32_t*> PyBytes_AS_STRING(sizes)
    cdef uint8_t* bits = <uint8_t*> PyBytes_AS_STRING(validity)
    cdef int32_t* bounds = <int32_t*> PyBytes_AS_STRING(offsets)
    cdef bint whole
    with nogil:
        whole = lay_out(each, rows, bounds)
        if not whole:
            mark(each, rows, bits)
    return None if whole else validity, offsets


cdef bint lay_out(const int32_t* sizes, Py_ssize_t rows, int32_t* bounds) noexcept nogil:
    """Return True if every row has a value. ABSENT is -1 as a signed number."""
    cdef Py_ssize_t row
    cdef int32_t total = 0, signs = 0
    bounds[0] = 0
    for row in range(rows):
        signs |= sizes[row]
        total += max(sizes[row], 0)
        bounds[row + 1] = total
    return signs >= 0


cdef void mark(const int32_t* sizes, Py_ssize_t rows, uint8_t* bits) noexcept nogil:
    cdef Py_ssize_t row
    cdef uint8_t byte = 0
    for row in range(rows):
        byte |= <uint8_t> ((sizes[row] >= 0) << (row & 7))
        if row & 7 == 7:
            bits[row >> 3] = byte
            byte = 0
    if rows & 7:
        bits[rows >> 3] = byte
