# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parses lines that are JSON objects: the top-level keys are columns.

Only plain objects are parsed: without a repeated key, with numbers as Python formats them, without escapes in keys.
Values that are objects or lists have only escapes that Python would write, and no surrogate pairs. Strings are returned
without escapes, objects and lists without white space. Every other line is left to the parser of single lines, which is
the pure implementation, and has the same results.

It replaces a loop over orjson or json: ship makes columns of 578 MB/s of objects of 200 bytes with it, 27 with orjson
and 23 with json; orjson and the smallest loop around it take 110 before Arrow. It checks bounds itself, and
``tests/wire/test_json_objects.py`` compares it with json under the sanitizers.

Example: the line ``{"a": "x", "b": 1.5, "c": null, "d": [1, 2]}`` is ``a`` ``x``, ``b`` ``1.5`` and ``d`` ``[1,2]``;
``{"b": 1.50}`` is left alone.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp, memmove

from ._key_table cimport Table, column_of, same, split_keyed
from ._line_parts cimport Cursor, escaped, skip
from ._text_columns cimport Span

from .text_column import SplitLines, TextColumn


cdef enum:
    # Limits on keys of an inner object, and on nesting.
    MOST_INNER = 16
    DEEPEST = 32
    # Maximum digits of a number that Python certainly formats unchanged.
    MOST_DIGITS = 15
    MOST_INTEGER = 4000


def split_objects(offsets, data):
    """Parse lines.

    :param offsets: the start of each line in ``data``, and the end of the last one, 32-bit integers.
    :param data: the lines without their ends, UTF-8.
    """
    return SplitLines(*split_keyed(TextColumn, offsets, data, take_object, b""))


cdef bint take_object(Cursor* line, Table* table, Py_ssize_t row) noexcept nogil:
    """Return True if a line is a plain object, and put its values into the table."""
    cdef Span key, value
    cdef int column = -1
    skip_space(line)
    if not skip(line, 123):
        return False
    skip_space(line)
    if not skip(line, 125):
        while True:
            if not key_text(line, &key):
                return False
            skip_space(line)
            if not skip(line, 58):
                return False
            skip_space(line)
            if not take_value(line, &value):
                return False
            # Nearly every line has the same keys in the same order.
            column = column_of(line.data, table, key, column + 1)
            # -2 marks a null value.
            if column < 0 or table.values[column][row].size != -1:
                return False
            table.values[column][row] = value
            skip_space(line)
            if skip(line, 125):
                break
            if not skip(line, 44):
                return False
            skip_space(line)
    skip_space(line)
    return line.at == line.end


cdef inline void skip_space(Cursor* line) noexcept nogil:
    while line.at < line.end and (line.data[line.at] == 32 or line.data[line.at] == 9 or line.data[line.at] == 13):
        line.at += 1


cdef inline bint key_text(Cursor* line, Span* span) noexcept nogil:
    """Read a string without escapes, with its quotes."""
    cdef uint8_t byte
    if not skip(line, 34):
        return False
    span.start = line.at
    while line.at < line.end:
        byte = line.data[line.at]
        if byte == 34:
            span.size = line.at - span.start
            line.at += 1
            return True
        if byte == 92 or byte < 32:
            return False
        line.at += 1
    return False


cdef bint take_value(Cursor* line, Span* span) noexcept nogil:
    """Read the value of a field: a string without its quotes, any other value as Python would format it."""
    cdef uint8_t byte
    if line.at >= line.end:
        return False
    byte = line.data[line.at]
    if byte == 34:
        return field_text(line, span)
    if byte == 110:
        span.size = -2
        return word(line, "null", 4)
    span.start = line.put = line.at
    if not inner_value(line, DEEPEST):
        return False
    span.size = line.put - span.start
    return True


cdef bint field_text(Cursor* line, Span* span) noexcept nogil:
    """Read a string without its quotes and escapes."""
    cdef uint8_t byte
    line.at += 1
    span.start = line.put = line.at
    while line.at < line.end:
        byte = line.data[line.at]
        if byte == 34:
            span.size = line.put - span.start
            line.at += 1
            return True
        if byte < 32:
            return False
        if byte == 92:
            if not unescape(line):
                return False
        else:
            line.data[line.put] = byte
            line.put += 1
            line.at += 1
    return False


cdef bint unescape(Cursor* line) noexcept nogil:
    """Read an escape, and write its character."""
    cdef int32_t code
    cdef uint8_t letter = line.data[line.at + 1] if line.end - line.at > 1 else 0
    if letter == 117:
        code = hexadecimal(line, line.at + 2)
        line.at += 6
        # Surrogates are left to Python.
        return code >= 0 and not 0xD800 <= code <= 0xDFFF and put_character(line, code)
    line.at += 2
    line.data[line.put] = escaped(letter)
    line.put += 1
    return line.data[line.put - 1] != 0


cdef int32_t hexadecimal(Cursor* line, int32_t at) noexcept nogil:
    """Return the value of four hexadecimal digits; -1 if they are none."""
    cdef int32_t number = 0
    cdef int place
    cdef uint8_t digit
    if line.end - at < 4:
        return -1
    for place in range(4):
        digit = line.data[at + place]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit | 32 <= 102:
            digit = (digit | 32) - 87
        else:
            return -1
        number = number << 4 | digit
    return number


cdef bint put_character(Cursor* line, int32_t code) noexcept nogil:
    """Write a character as UTF-8, which is shorter than its escape."""
    cdef uint8_t* at = line.data + line.put
    if code < 0x80:
        at[0] = code
        line.put += 1
    elif code < 0x800:
        at[0], at[1] = 0xC0 | code >> 6, 0x80 | code & 63
        line.put += 2
    else:
        at[0], at[1], at[2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 63, 0x80 | code & 63
        line.put += 3
    return True


cdef inline void keep(Cursor* line, int32_t begin) noexcept nogil:
    """Write the bytes read since ``begin``."""
    if line.put != begin:
        memmove(line.data + line.put, line.data + begin, line.at - begin)
    line.put += line.at - begin


cdef inline bint mark(Cursor* line, uint8_t byte) noexcept nogil:
    """Read and write a byte after white space. Return True if it was there."""
    skip_space(line)
    if not skip(line, byte):
        return False
    line.data[line.put] = byte
    line.put += 1
    return True


cdef bint inner_value(Cursor* line, int depth) noexcept nogil:
    """Read a value, and write it without white space."""
    cdef int32_t begin
    cdef uint8_t byte
    skip_space(line)
    if line.at >= line.end:
        return False
    begin = line.at
    byte = line.data[line.at]
    if byte == 123:
        return inner_object(line, depth)
    if byte == 91:
        return inner_list(line, depth)
    if byte == 34:
        if not inner_text(line):
            return False
    elif byte == 116:
        if not word(line, "true", 4):
            return False
    elif byte == 102:
        if not word(line, "false", 5):
            return False
    elif byte == 110:
        if not word(line, "null", 4):
            return False
    elif not number(line):
        return False
    keep(line, begin)
    return True


cdef bint inner_text(Cursor* line) noexcept nogil:
    """Read a string whose escapes are those that Python would write."""
    cdef uint8_t byte
    line.at += 1
    while line.at < line.end:
        byte = line.data[line.at]
        line.at += 1
        if byte == 34:
            return True
        if byte < 32:
            return False
        if byte == 92:
            byte = line.data[line.at] if line.at < line.end else 0
            if not (byte == 34 or byte == 92 or byte == 110 or byte == 116 or byte == 114 or byte == 98 or byte == 102):
                return False
            line.at += 1
    return False


cdef inline bint word(Cursor* line, const char* letters, int size) noexcept nogil:
    if line.end - line.at < size or memcmp(line.data + line.at, letters, size) != 0:
        return False
    line.at += size
    return True


cdef bint number(Cursor* line) noexcept nogil:
    """Read a number that Python would format unchanged."""
    cdef bint negative = skip(line, 45)
    cdef int32_t begin = line.at, whole, fraction, zeros = 0
    while line.at < line.end and 48 <= line.data[line.at] <= 57:
        line.at += 1
    whole = line.at - begin
    if whole == 0 or whole > MOST_INTEGER or (whole > 1 and line.data[begin] == 48):
        return False
    if line.at < line.end and (line.data[line.at] == 101 or line.data[line.at] == 69):
        return False
    if not skip(line, 46):
        return not (negative and line.data[begin] == 48)
    begin, fraction = (begin if line.data[begin] != 48 else -1), line.at
    while line.at < line.end and 48 <= line.data[line.at] <= 57:
        if zeros == line.at - fraction and line.data[line.at] == 48:
            zeros += 1
        line.at += 1
    fraction = line.at - fraction
    if fraction == 0 or (line.at < line.end and (line.data[line.at] == 101 or line.data[line.at] == 69)):
        return False
    if line.data[line.at - 1] == 48 and fraction > 1:
        return False
    if begin < 0:  # It begins with "0."; Python formats 0.00001 as 1e-05.
        return zeros <= 3 and fraction - zeros <= MOST_DIGITS
    return whole + fraction <= MOST_DIGITS


cdef bint inner_object(Cursor* line, int depth) noexcept nogil:
    cdef Span keys[MOST_INNER]
    cdef int32_t begin
    cdef int count = 0, place
    if depth == 0 or not mark(line, 123):
        return False
    if mark(line, 125):
        return True
    while count < MOST_INNER:
        skip_space(line)
        begin = line.at
        if not key_text(line, &keys[count]):
            return False
        keys[count].start = line.put + 1
        keep(line, begin)
        for place in range(count):
            if same(line.data, keys[place], keys[count]):
                return False
        count += 1
        if not mark(line, 58) or not inner_value(line, depth - 1):
            return False
        if mark(line, 125):
            return True
        if not mark(line, 44):
            return False
    return False


cdef bint inner_list(Cursor* line, int depth) noexcept nogil:
    if depth == 0 or not mark(line, 91):
        return False
    if mark(line, 93):
        return True
    while inner_value(line, depth - 1):
        if mark(line, 93):
            return True
        if not mark(line, 44):
            return False
    return False
