# cython: language_level=3
"""What the compiled parsers of lines share: the lines themselves, and a place in one of them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from ._text_columns cimport Span


cdef struct Lines:
    # Lines without their ends one behind the other, and where each begins, and the last one ends; borrowed.
    Py_buffer view_of_bounds
    Py_buffer view_of_text
    const int32_t* bounds
    const uint8_t* text
    Py_ssize_t rows


cdef inline int borrow(Lines* lines, offsets, data) except -1:
    """Look into the memory of two objects; to be followed by :func:`give_back`."""
    PyObject_GetBuffer(offsets, &lines.view_of_bounds, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data, &lines.view_of_text, PyBUF_SIMPLE)
    except BaseException:
        PyBuffer_Release(&lines.view_of_bounds)
        raise
    lines.bounds, lines.text = <const int32_t*> lines.view_of_bounds.buf, <const uint8_t*> lines.view_of_text.buf
    lines.rows = lines.view_of_bounds.len // 4 - 1
    return 0


cdef inline void give_back(Lines* lines):
    PyBuffer_Release(&lines.view_of_text)
    PyBuffer_Release(&lines.view_of_bounds)


cdef inline uint8_t* copied(const uint8_t* text, size_t size, size_t more) except NULL:
    """The lines in memory that may be written, and so many bytes behind them; to be freed."""
    cdef uint8_t* data = <uint8_t*> malloc(size + more + 1)
    if data == NULL:
        raise MemoryError()
    memcpy(data, text, size)
    return data


cdef struct Cursor:
    # The rest of a line. Where lines are a copy, what becomes another text, or a shorter one, is written where it began.
    uint8_t* data
    int32_t at
    int32_t end
    int32_t put


cdef inline bint is_space(uint8_t byte) noexcept nogil:
    return byte == 32 or 9 <= byte <= 13


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return 48 <= byte <= 57


cdef inline bint skip(Cursor* line, uint8_t byte) noexcept nogil:
    """Whether the next byte is this one; it is taken then."""
    if line.at < line.end and line.data[line.at] == byte:
        line.at += 1
        return True
    return False


cdef inline bint word(Cursor* line, Span* span) noexcept nogil:
    """Take bytes that are no white space; whether there are some."""
    span.start = line.at
    while line.at < line.end and not is_space(line.data[line.at]):
        line.at += 1
    span.size = line.at - span.start
    return span.size > 0


cdef inline uint8_t escaped(uint8_t letter) noexcept nogil:
    """What a letter behind a backslash stands for; 0 for itself, with the backslash."""
    if letter == 34 or letter == 92 or letter == 47:
        return letter
    if letter == 110:
        return 10
    if letter == 116:
        return 9
    if letter == 114:
        return 13
    if letter == 98:
        return 8
    if letter == 102:
        return 12
    return 0


cdef inline void leave_dashes_out(const uint8_t* data, Span* spans, int fields) noexcept nogil:
    cdef int field
    for field in range(fields):
        if spans[field].size == 1 and data[spans[field].start] == 45:
            spans[field].size = -1
