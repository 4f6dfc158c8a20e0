# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of ``measure_lines.py``."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t
from libc.string cimport memchr

from .measure_lines import LineFigures

# The number of bytes whose count fits into eight bits, so that the compiler can vectorise the loop.
cdef enum:
    RUN = 255


def measure_lines(bytes block not None):
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(block)
    cdef size_t size = len(block), ends, long_ends = 0
    cdef uint8_t seen = 0
    with nogil:
        ends = count(data, size, &seen)
        if memchr(data, 13, size) != NULL:
            long_ends = count_long(data, size)
    return LineFigures(ends, long_ends, seen < 128)


cdef size_t count(const uint8_t* data, size_t size, uint8_t* seen) noexcept nogil:
    cdef size_t total = 0, at = 0, end
    cdef uint8_t few, bits = 0
    while at < size:
        end = at + RUN if size - at > RUN else size
        few = 0
        while at < end:
            few += data[at] == 10
            bits |= data[at]
            at += 1
        total += few
    seen[0] = bits
    return total


cdef size_t count_long(const uint8_t* data, size_t size) noexcept nogil:
    cdef size_t total = 0, at
    for at in range(1, size):
        total += data[at] == 10 and data[at - 1] == 13
    return total
