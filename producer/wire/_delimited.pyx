# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Takes lines of values between delimiters apart; ``delimited.py`` says how."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memset

from ._line_parts cimport Cursor, Lines, borrow, copied, give_back
from ._text_columns cimport Span, text_column

from .delimited import DelimitedLines
from .text_column import TextColumn


def split_delimited(offsets, data, int delimiter, Py_ssize_t count):
    """Take lines apart.

    :param offsets: where each line begins in ``data``, and the last one ends, 32-bit numbers.
    :param data: the lines without their ends, UTF-8.
    :param delimiter: the number of an ASCII character.
    :param count: how many values a line has.
    """
    cdef Lines lines
    borrow(&lines, offsets, data)
    try:
        return split(lines.bounds, lines.rows, lines.text, delimiter, count)
    finally:
        give_back(&lines)


cdef object split(
    const int32_t* bounds, Py_ssize_t rows, const uint8_t* original, uint8_t delimiter, Py_ssize_t count
):
    cdef bytes known = PyBytes_FromStringAndSize(NULL, rows)
    cdef uint8_t* marks = <uint8_t*> PyBytes_AS_STRING(known)
    cdef Py_ssize_t row, place
    cdef Cursor line
    cdef Span* of_line
    cdef uint8_t* data = copied(original, bounds[rows], 0)
    cdef Span* spans = <Span*> malloc(max(rows, 1) * count * sizeof(Span))
    try:
        if spans == NULL:
            raise MemoryError()
        with nogil:
            for row in range(rows):
                line.data, line.at, line.end = data, bounds[row], bounds[row + 1]
                of_line = spans + row * count
                marks[row] = take_values(&line, of_line, count, delimiter)
                if not marks[row]:
                    # -1 in every byte is -1.
                    memset(of_line, 0xFF, count * sizeof(Span))
        columns = [TextColumn._make(text_column(data, spans + place, rows, count)) for place in range(count)]
        return DelimitedLines(known, columns)
    finally:
        free(spans)
        free(data)


cdef bint take_values(Cursor* line, Span* spans, Py_ssize_t count, uint8_t delimiter) noexcept nogil:
    """Whether a line has as many values as it should."""
    cdef Py_ssize_t place
    for place in range(count):
        if line.at < line.end and line.data[line.at] == 34:
            if not quoted(line, &spans[place]):
                return False
        else:
            bare(line, &spans[place], delimiter)
        if line.at == line.end:
            return place == count - 1
        if line.data[line.at] != delimiter:
            return False
        line.at += 1
    return False


cdef inline void bare(Cursor* line, Span* span, uint8_t delimiter) noexcept nogil:
    cdef const uint8_t* found = <const uint8_t*> memchr(line.data + line.at, delimiter, line.end - line.at)
    span.start = line.at
    line.at = line.end if found == NULL else <int32_t> (found - line.data)
    span.size = line.at - span.start
    if span.size == 0:
        span.size = -1


cdef bint quoted(Cursor* line, Span* span) noexcept nogil:
    """Take what is between quotes, and these; two of them are one."""
    cdef int32_t put
    line.at += 1
    span.start = put = line.at
    while line.at < line.end:
        if line.data[line.at] == 34:
            line.at += 1
            if line.at == line.end or line.data[line.at] != 34:
                span.size = put - span.start
                return True
        line.data[put] = line.data[line.at]
        put += 1
        line.at += 1
    return False
