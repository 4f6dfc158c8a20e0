# cython: language_level=3
"""Helpers of the native parsers of keys with values: a table of the values of a block, with a column per key."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from ._bytes cimport Text, text_of
from ._line_parts cimport Cursor, Lines, borrow, copied, give_back
from ._text_columns cimport Span, text_column


cdef enum:
    # Maximum keys of a block; columns are not worth it for more.
    MOST_KEYS = 64


cdef struct Table:
    # The keys of a block, and for each key the spans of its values, one per row.
    Span keys[MOST_KEYS]
    Span* values[MOST_KEYS]
    int count
    Py_ssize_t rows
    # A constant value of the parser, stored after the lines.
    Span constant


# Puts the values of a line into a row of the table; returns True if the line has the format.
ctypedef bint (*TakeKeys)(Cursor* line, Table* table, Py_ssize_t row) noexcept nogil


cdef inline tuple split_keyed(kind, offsets, data, TakeKeys take, bytes constant):
    """Parse lines whose fields have their names next to them.

    :param kind: the class ``TextColumn``.
    :param offsets: the start of each line in ``data``, and the end of the last one, 32-bit integers.
    :param data: the lines without their ends, UTF-8; the parser writes into a copy.
    :return: a byte per line, 1 if it has the format, and the columns by name, in the order of first appearance.
    """
    cdef Lines lines
    cdef Table table
    cdef bytes known
    cdef uint8_t* marks
    cdef Text more = text_of(constant)
    cdef uint8_t* text = NULL
    table.count = 0
    borrow(&lines, offsets, data)
    try:
        known = PyBytes_FromStringAndSize(NULL, lines.rows)
        marks = <uint8_t*> PyBytes_AS_STRING(known)
        table.rows, table.constant.start, table.constant.size = lines.rows, lines.bounds[lines.rows], <int32_t> more.size
        text = copied(lines.text, table.constant.start, more.size)
        memcpy(text + table.constant.start, more.data, more.size)
        with nogil:
            take_rows(&lines, text, &table, take, marks)
        return known, columns_of(kind, text, &table)
    finally:
        free_values(&table)
        free(text)
        give_back(&lines)


cdef inline void take_rows(Lines* lines, uint8_t* text, Table* table, TakeKeys take, uint8_t* known) noexcept nogil:
    cdef Py_ssize_t row
    cdef Cursor line
    for row in range(lines.rows):
        line.data, line.at, line.end = text, lines.bounds[row], lines.bounds[row + 1]
        known[row] = take(&line, table, row)
        if not known[row]:
            leave_out(table, row)


cdef inline int column_of(const uint8_t* data, Table* table, Span key, int likely) noexcept nogil:
    """Return the column of a key; -1 if the table is full.

    :param likely: the column to try first; it may be one after the last.
    """
    cdef int place
    if likely < table.count and same(data, table.keys[likely], key):
        return likely
    for place in range(table.count):
        if same(data, table.keys[place], key):
            return place
    if table.count == MOST_KEYS:
        return -1
    table.values[table.count] = <Span*> malloc(table.rows * sizeof(Span))
    if table.values[table.count] == NULL:
        return -1
    # 0xFF in every byte is -1.
    memset(table.values[table.count], 0xFF, table.rows * sizeof(Span))
    table.keys[table.count] = key
    table.count += 1
    return table.count - 1


cdef inline void leave_out(Table* table, Py_ssize_t row) noexcept nogil:
    """Remove the values of a row."""
    cdef int key
    for key in range(table.count):
        table.values[key][row].size = -1


cdef inline dict columns_of(kind, const uint8_t* data, Table* table):
    cdef int key
    return {
        data[table.keys[key].start : table.keys[key].start + table.keys[key].size].decode():
            text_column(kind, data, table.values[key], table.rows, 1)
        for key in range(table.count)
    }


cdef inline void free_values(Table* table) noexcept:
    cdef int key
    for key in range(table.count):
        free(table.values[key])


cdef inline bint same(const uint8_t* data, Span one, Span other) noexcept nogil:
    return one.size == other.size and memcmp(data + one.start, data + other.start, one.size) == 0
