# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parses lines of delimited values by the rules of ``delimited.py``."""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr

from ._line_parts cimport Cursor, split_fields
from ._text_columns cimport Span

from .text_column import SplitLines, TextColumn


cdef struct Form:
    uint8_t delimiter
    Py_ssize_t count


def split_delimited(offsets, data, int delimiter, names not None):
    """Parse lines.

    :param offsets: the start of each line in ``data``, and the end of the last one, 32-bit integers.
    :param data: the lines without their ends, UTF-8.
    :param delimiter: the code of an ASCII character.
    :param names: the unique names of a line's values.
    """
    cdef Form form
    form.delimiter, form.count = delimiter, len(names)
    return SplitLines(*split_fields(TextColumn, offsets, data, names, take_values, &form, True))


cdef bint take_values(Cursor* line, Span* spans, const void* how) noexcept nogil:
    """Return True if a line has the required number of values."""
    cdef const Form* form = <const Form*> how
    cdef Py_ssize_t place
    for place in range(form.count):
        if line.at < line.end and line.data[line.at] == 34:
            if not quoted(line, &spans[place]):
                return False
        else:
            bare(line, &spans[place], form.delimiter)
        if line.at == line.end:
            return place == form.count - 1
        if line.data[line.at] != form.delimiter:
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
    """Read a quoted text with its quotes; two quotes in it are one."""
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
