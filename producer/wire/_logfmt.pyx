# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parses lines of logfmt by the rules of ``logfmt.py``, except for those with ``\\u``."""

from libc.stdint cimport int32_t, uint8_t

from ._key_table cimport Table, column_of, split_keyed
from ._line_parts cimport Cursor, escaped, is_space
from ._text_columns cimport Span

from .text_column import SplitLines, TextColumn


def split_logfmt(offsets, data):
    """Parse lines.

    :param offsets: the start of each line in ``data``, and the end of the last one, 32-bit integers.
    :param data: the lines without their ends, UTF-8.
    """
    return SplitLines(*split_keyed(TextColumn, offsets, data, take_words, b"true"))


cdef bint take_words(Cursor* line, Table* table, Py_ssize_t row) noexcept nogil:
    """Return True if a line is logfmt, and put its values into the table."""
    cdef Span key, value
    cdef int column = -1
    cdef bint first = True
    skip_space(line)
    while line.at < line.end:
        if not take_key(line, &key):
            return False
        value = table.constant  # The value of a flag.
        if line.at < line.end and line.data[line.at] == 61:
            line.at += 1
            if not take_value(line, &value):
                return False
        elif first:
            return False
        if line.at < line.end and not is_space(line.data[line.at]):
            return False
        # Nearly every line has the same keys in the same order.
        column = column_of(line.data, table, key, column + 1)
        if column < 0:
            return False
        table.values[column][row] = value
        first = False
        skip_space(line)
    return not first


cdef inline void skip_space(Cursor* line) noexcept nogil:
    while line.at < line.end and is_space(line.data[line.at]):
        line.at += 1


cdef inline bint take_key(Cursor* line, Span* span) noexcept nogil:
    cdef uint8_t byte
    span.start = line.at
    while line.at < line.end:
        byte = line.data[line.at]
        if byte == 61 or byte == 34 or is_space(byte):
            break
        line.at += 1
    span.size = line.at - span.start
    return span.size > 0


cdef inline bint take_value(Cursor* line, Span* span) noexcept nogil:
    if line.at < line.end and line.data[line.at] == 34:
        return quoted(line, span)
    span.start = line.at
    while line.at < line.end and not is_space(line.data[line.at]):
        line.at += 1
    span.size = line.at - span.start
    return True


cdef bint quoted(Cursor* line, Span* span) noexcept nogil:
    """Read a quoted text with its quotes, and replace its escapes."""
    cdef int32_t put
    cdef uint8_t byte
    line.at += 1
    span.start = put = line.at
    while line.at < line.end:
        byte = line.data[line.at]
        line.at += 1
        if byte == 34:
            span.size = put - span.start
            return True
        if byte == 92:
            if line.at == line.end or line.data[line.at] == 117:
                return False
            byte = escaped(line.data[line.at])
            if byte == 0:  # An unknown escape: the backslash and the byte after it are ordinary characters.
                line.data[put] = 92
                put += 1
                byte = line.data[line.at]
            line.at += 1
        line.data[put] = byte
        put += 1
    return False
