# cython: language_level=3
"""Helpers of the native parsers of lines: the lines, a position in one of them, and the loop over them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ._text_columns cimport Span, text_column


cdef struct Lines:
    # Borrowed lines without their ends, with the start of each, and the end of the last one.
    Py_buffer view_of_bounds
    Py_buffer view_of_text
    const int32_t* bounds
    const uint8_t* text
    Py_ssize_t rows


cdef inline int borrow(Lines* lines, offsets, data) except -1:
    """Borrow the memory of two objects; release it with :func:`give_back`."""
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
    """Copy the lines into writable memory with ``more`` bytes after them; the caller frees it."""
    cdef uint8_t* data = <uint8_t*> malloc(size + more + 1)
    if data == NULL:
        raise MemoryError()
    memcpy(data, text, size)
    return data


cdef struct Cursor:
    # The rest of a line. If lines are a copy, a changed or shorter text is written over the original.
    uint8_t* data
    int32_t at
    int32_t end
    int32_t put


# Finds the fields of a line; returns True if the line has the format. All spans are null before.
ctypedef bint (*TakeFields)(Cursor* line, Span* spans, const void* how) noexcept nogil


cdef inline tuple split_fields(kind, offsets, data, names, TakeFields take, const void* how, bint written):
    """Parse lines that have the same fields.

    :param kind: the class ``TextColumn``.
    :param offsets: the start of each line in ``data``, and the end of the last one, 32-bit integers.
    :param data: the lines without their ends, UTF-8.
    :param names: the field names.
    :param how: passed to ``take``.
    :param written: True if ``take`` writes into the lines, which are then copied.
    :return: a byte per line, 1 if it has the format, and the columns by name.
    """
    cdef Lines lines
    cdef Py_ssize_t place, count = len(names)
    cdef bytes known
    cdef uint8_t* marks
    cdef uint8_t* text = NULL
    cdef Span* spans = NULL
    borrow(&lines, offsets, data)
    try:
        known = PyBytes_FromStringAndSize(NULL, lines.rows)
        marks = <uint8_t*> PyBytes_AS_STRING(known)
        text = copied(lines.text, lines.bounds[lines.rows], 0) if written else <uint8_t*> lines.text
        spans = <Span*> malloc(max(lines.rows, 1) * count * sizeof(Span))
        if spans == NULL:
            raise MemoryError()
        with nogil:
            take_all(&lines, text, spans, count, take, how, marks)
        return known, {
            name: text_column(kind, text, spans + place, lines.rows, count) for place, name in enumerate(names)
        }
    finally:
        free(spans)
        if written:
            free(text)
        give_back(&lines)


cdef inline void take_all(
    Lines* lines, uint8_t* text, Span* spans, Py_ssize_t count, TakeFields take, const void* how, uint8_t* known
) noexcept nogil:
    cdef Py_ssize_t row
    cdef Cursor line
    for row in range(lines.rows):
        line.data, line.at, line.end = text, lines.bounds[row], lines.bounds[row + 1]
        # 0xFF in every byte is -1.
        memset(spans, 0xFF, count * sizeof(Span))
        known[row] = take(&line, spans, how)
        if not known[row]:
            memset(spans, 0xFF, count * sizeof(Span))
        spans += count


cdef inline bint is_space(uint8_t byte) noexcept nogil:
    return byte == 32 or 9 <= byte <= 13


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return 48 <= byte <= 57


cdef inline bint skip(Cursor* line, uint8_t byte) noexcept nogil:
    """Read a byte if it is the next one. Return True if it was."""
    if line.at < line.end and line.data[line.at] == byte:
        line.at += 1
        return True
    return False


cdef inline bint word(Cursor* line, Span* span) noexcept nogil:
    """Read bytes up to white space. Return True if there are any."""
    span.start = line.at
    while line.at < line.end and not is_space(line.data[line.at]):
        line.at += 1
    span.size = line.at - span.start
    return span.size > 0


cdef inline uint8_t escaped(uint8_t letter) noexcept nogil:
    """Return the character of an escape; 0 for an unknown one, which keeps its backslash."""
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
