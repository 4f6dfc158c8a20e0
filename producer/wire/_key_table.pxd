# cython: language_level=3
"""What compiled parsers of keys with values share: the values of a block, a column a key."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memset

from ._text_columns cimport Span


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


cdef inline bint same(const uint8_t* data, Span one, Span other) noexcept nogil:
    return one.size == other.size and memcmp(data + one.start, data + other.start, one.size) == 0
