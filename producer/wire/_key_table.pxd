# cython: language_level=3
"""What compiled parsers of keys with values share: the values of a block, a column a key."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

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


cdef inline list columns_of(const uint8_t* data, Table* table):
    """Names, and the buffers of their columns."""
    cdef int key
    return [
        (data[table.keys[key].start : table.keys[key].start + table.keys[key].size].decode(),
         text_column(data, table.values[key], table.rows, 1))
        for key in range(table.count)
    ]


cdef inline void free_values(Table* table) noexcept:
    cdef int key
    for key in range(table.count):
        free(table.values[key])


cdef inline bint same(const uint8_t* data, Span one, Span other) noexcept nogil:
    return one.size == other.size and memcmp(data + one.start, data + other.start, one.size) == 0
