# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Takes lines of syslog apart; ``syslog.py`` says how."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ._line_parts cimport Cursor, Lines, borrow, give_back, is_digit, is_space, leave_dashes_out, skip, word
from ._text_columns cimport Span, text_column

from .access_log import AccessLines
from .text_column import TextColumn


cdef enum:
    # The places of the fields in a line's spans.
    PRIORITY, VERSION, TIME, HOST, PROGRAM, PID, MSGID, STRUCTURED_DATA, MESSAGE
    FIELDS

cdef enum:
    HIGHEST_PRIORITY = 191
    # Digits of a fraction of a second.
    MOST_DIGITS = 9


def split_syslog(offsets, data):
    """Take lines apart.

    :param offsets: where each line begins in ``data``, and the last one ends, 32-bit numbers.
    :param data: the lines without their ends, UTF-8.
    """
    cdef Lines lines
    borrow(&lines, offsets, data)
    try:
        return split(lines.bounds, lines.rows, lines.text)
    finally:
        give_back(&lines)


cdef object split(const int32_t* bounds, Py_ssize_t rows, const uint8_t* data):
    cdef bytes known = PyBytes_FromStringAndSize(NULL, rows)
    cdef uint8_t* marks = <uint8_t*> PyBytes_AS_STRING(known)
    cdef Py_ssize_t row, field
    cdef Cursor line
    cdef Span* of_line
    cdef Span* spans = <Span*> malloc(max(rows, 1) * FIELDS * sizeof(Span))
    if spans == NULL:
        raise MemoryError()
    try:
        with nogil:
            for row in range(rows):
                line.data, line.at, line.end = <uint8_t*> data, bounds[row], bounds[row + 1]
                of_line = spans + row * FIELDS
                # -1 in every byte is -1.
                memset(of_line, 0xFF, FIELDS * sizeof(Span))
                marks[row] = take_line(&line, of_line)
                if marks[row]:
                    leave_dashes_out(data, of_line, FIELDS)
                else:
                    memset(of_line, 0xFF, FIELDS * sizeof(Span))
        columns = [TextColumn._make(text_column(data, spans + field, rows, FIELDS)) for field in range(FIELDS)]
        return AccessLines(known, columns)
    finally:
        free(spans)


cdef inline uint8_t peek(Cursor* line) noexcept nogil:
    """The next byte; at the end 0, which is no byte that is asked for."""
    return line.data[line.at] if line.at < line.end else 0


cdef inline bint field(Cursor* line, Span* span) noexcept nogil:
    """Take a word, and the space behind it; whether there are both."""
    return word(line, span) and skip(line, 32)


cdef inline void rest(Cursor* line, Span* span) noexcept nogil:
    span.start, span.size = line.at, line.end - line.at


cdef bint take_line(Cursor* line, Span* spans) noexcept nogil:
    if peek(line) == 60:
        if not priority(line, &spans[PRIORITY]):
            return False
        if 49 <= peek(line) <= 57 and version(line, &spans[VERSION]):
            return from_version(line, spans)
    return classic(line, spans)


cdef bint priority(Cursor* line, Span* span) noexcept nogil:
    """Take a priority between angle brackets; its span is without leading zeros."""
    cdef int number = 0, count = 0
    line.at += 1
    span.start = line.at
    while count < 3 and line.at < line.end and is_digit(line.data[line.at]):
        number = 10 * number + line.data[line.at] - 48
        line.at += 1
        count += 1
    span.size = count
    while span.size > 1 and line.data[span.start] == 48:
        span.start += 1
        span.size -= 1
    return count > 0 and number <= HIGHEST_PRIORITY and skip(line, 62)


cdef bint version(Cursor* line, Span* span) noexcept nogil:
    """Take a version and the space behind it, or nothing."""
    cdef int32_t begin = line.at
    span.start = begin
    line.at += 1
    if is_digit(peek(line)):
        line.at += 1
    span.size = line.at - begin
    if skip(line, 32):
        return True
    line.at, span.size = begin, -1
    return False


cdef bint from_version(Cursor* line, Span* spans) noexcept nogil:
    """RFC 5424, behind the version."""
    spans[TIME].start, spans[TIME].size = line.at, 1
    if not skip(line, 45) and not iso_time(line, &spans[TIME]):
        return False
    if not skip(line, 32):
        return False
    if not (field(line, &spans[HOST]) and field(line, &spans[PROGRAM])):
        return False
    if not (field(line, &spans[PID]) and field(line, &spans[MSGID]) and structured(line, &spans[STRUCTURED_DATA])):
        return False
    if line.at == line.end:
        return True
    if not skip(line, 32):
        return False
    if line.end - line.at >= 3 and line.data[line.at] == 0xEF:
        if line.data[line.at + 1] == 0xBB and line.data[line.at + 2] == 0xBF:
            line.at += 3
    rest(line, &spans[MESSAGE])
    return True


cdef bint structured(Cursor* line, Span* span) noexcept nogil:
    """Take a dash, or elements between brackets."""
    span.start, span.size = line.at, 1
    if skip(line, 45):
        return True
    if peek(line) != 91:
        return False
    while peek(line) == 91:
        if not element(line):
            return False
    span.size = line.at - span.start
    return True


cdef bint element(Cursor* line) noexcept nogil:
    line.at += 1
    if not name(line):
        return False
    while skip(line, 32):
        if not (name(line) and skip(line, 61) and quoted(line)):
            return False
    return skip(line, 93)


cdef inline bint name(Cursor* line) noexcept nogil:
    """Take the name of an element or a parameter; whether there is one."""
    cdef uint8_t byte
    cdef int32_t begin = line.at
    while line.at < line.end:
        byte = line.data[line.at]
        if byte == 93 or byte == 61 or byte == 34 or is_space(byte):
            break
        line.at += 1
    return line.at > begin


cdef inline bint quoted(Cursor* line) noexcept nogil:
    cdef uint8_t byte
    if not skip(line, 34):
        return False
    while line.at < line.end:
        byte = line.data[line.at]
        # What is behind a backslash is no quote; of a longer character the first byte.
        line.at += 2 if byte == 92 else 1
        if byte == 34:
            return True
    return False


cdef inline bint pattern(Cursor* line, const char* wanted, int size) noexcept nogil:
    """Take bytes of these kinds: ``9`` a digit, ``A`` a capital, ``a`` a small letter; others are themselves."""
    cdef int place
    cdef uint8_t byte, kind
    if line.end - line.at < size:
        return False
    for place in range(size):
        byte, kind = line.data[line.at + place], wanted[place]
        if kind == 57:
            if not is_digit(byte):
                return False
        elif kind == 65:
            if not 65 <= byte <= 90:
                return False
        elif kind == 97:
            if not 97 <= byte <= 122:
                return False
        elif byte != kind:
            return False
    line.at += size
    return True


cdef bint iso_time(Cursor* line, Span* span) noexcept nogil:
    """Take a time as ISO 8601 has it."""
    cdef int digits = 0
    span.start = line.at
    if not (pattern(line, "9999-99-99", 10) and skip(line, 84) and pattern(line, "99:99:99", 8)):
        return False
    if skip(line, 46) or skip(line, 44):
        while is_digit(peek(line)):
            line.at += 1
            digits += 1
        if not 1 <= digits <= MOST_DIGITS:
            return False
    if not skip(line, 90) and (skip(line, 43) or skip(line, 45)):
        if not pattern(line, "99", 2):
            return False
        skip(line, 58)
        if not pattern(line, "99", 2):
            return False
    span.size = line.at - span.start
    return True


cdef bint classic_time(Cursor* line, Span* span) noexcept nogil:
    """Take a time as RFC 3164 has it."""
    span.start = line.at
    span.size = 15
    if not pattern(line, "Aaa ", 4):
        return False
    return (skip(line, 32) or pattern(line, "9", 1)) and pattern(line, "9 99:99:99", 10)


cdef bint classic(Cursor* line, Span* spans) noexcept nogil:
    """RFC 3164, behind the priority."""
    cdef Span program, pid
    cdef int32_t begin
    if is_digit(peek(line)):
        if not iso_time(line, &spans[TIME]):
            return False
    elif not classic_time(line, &spans[TIME]):
        return False
    if not (skip(line, 32) and field(line, &spans[HOST])):
        return False
    begin = line.at
    pid.start, pid.size = 0, -1
    if tag(line, &program, &pid):
        spans[PROGRAM], spans[PID] = program, pid
        skip(line, 32)
    else:
        line.at = begin
    rest(line, &spans[MESSAGE])
    return True


cdef bint tag(Cursor* line, Span* program, Span* pid) noexcept nogil:
    """Take a program, what is between brackets behind it, and a colon."""
    cdef uint8_t byte
    program.start = line.at
    while line.at < line.end:
        byte = line.data[line.at]
        if byte == 58 or byte == 91 or byte == 93 or is_space(byte):
            break
        line.at += 1
    program.size = line.at - program.start
    if program.size == 0:
        return False
    if skip(line, 91):
        pid.start = line.at
        while line.at < line.end and line.data[line.at] != 93:
            line.at += 1
        pid.size = line.at - pid.start
        if not skip(line, 93):
            return False
    return skip(line, 58)
