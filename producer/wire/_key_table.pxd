# cython: language_level=3
"""Shared by the compiled parsers of keys with values: the values of a block, a column a key."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from ._bytes cimport Text, text_of
from ._line_parts cimport Cursor, Lines, borrow, copied, give_back
from ._text_columns cimport Span, text_column


cdef enum:
    # Keys of a block. More of them is nothing to make columns of.
    MOST_KEYS = 64


cdef struct Table:
    # The keys of a block, and under each the spans of its values, a row each.
    Span keys[MOST_KEYS]
    Span* values[MOST_KEYS]
    int count
    Py_ssize_t rows
    # A value of the parser's own, which is behind the lines.
    Span constant


# Finds the values of a line, which it puts into a row of the table; true if the line is of the format.
ctypedef bint (*TakeKeys)(Cursor* line, Table* table, Py_ssize_t row) noexcept nogil


cdef inline tuple split_keyed(kind, offsets, data, TakeKeys take, bytes constant):
    """Take lines apart whose fields have their names beside them.

    :param kind: the class ``TextColumn``.
    :param offsets: where each line begins in ``data``, and the last one ends, 32-bit numbers.
    :param data: the lines without their ends, UTF-8; the parser writes into a copy.
    :return: a byte a line, 1 if it is of the format, and the columns by their names, in the order of these.
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
    """The place of a key; -1 if there is no room for it.

    :param likely: where it is looked for first, a place or the one behind the last.
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
    # -1 in every byte is -1.
    memset(table.values[table.count], 0xFF, table.rows * sizeof(Span))
    table.keys[table.count] = key
    table.count += 1
    return table.count - 1


cdef inline void leave_out(Table* table, Py_ssize_t row) noexcept nogil:
    """Let a row have no values."""
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
