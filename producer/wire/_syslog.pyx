# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Parses lines of syslog by the rules of ``syslog.py``."""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memset

from ._line_parts cimport Cursor, is_digit, is_space, leave_dashes_out, skip, split_fields, word
from ._text_columns cimport Span

from .syslog import FIELDS as NAMES
from .syslog import HEADER_FIELDS as HEADER_NAMES
from .text_column import SplitLines, TextColumn


cdef enum:
    # The positions of the fields in a line's spans; in a header, PROGRAM is the text after the host.
    PRIORITY, VERSION, TIME, HOST, PROGRAM, PID, MSGID, STRUCTURED_DATA, MESSAGE
    FIELDS


cdef enum:
    REST = 4
    HIGHEST_PRIORITY = 191
    # Maximum digits of a fraction of a second.
    MOST_DIGITS = 9


def split_syslog(offsets, data):
    """Parse lines.

    :param offsets: the start of each line in ``data``, and the end of the last one, 32-bit integers.
    :param data: the lines without their ends, UTF-8.
    """
    return SplitLines(*split_fields(TextColumn, offsets, data, NAMES, take_line, NULL, False))


def split_headers(offsets, data):
    """Parse messages up to the host: priority, version, time, host, and the rest as the last column.

    A message without a priority is all rest.

    :param offsets: the start of each message in ``data``, and the end of the last one, 32-bit integers.
    :param data: the messages, of any bytes.
    """
    return SplitLines(*split_fields(TextColumn, offsets, data, HEADER_NAMES, take_header, NULL, False))


cdef inline uint8_t peek(Cursor* line) noexcept nogil:
    """Return the next byte; 0 at the end, which matches no expected byte."""
    return line.data[line.at] if line.at < line.end else 0


cdef inline bint field(Cursor* line, Span* span) noexcept nogil:
    """Read a word and the space after it. Return True if both are there."""
    return word(line, span) and skip(line, 32)


cdef inline void rest(Cursor* line, Span* span) noexcept nogil:
    span.start, span.size = line.at, line.end - line.at


cdef bint take_header(Cursor* line, Span* spans, const void* how) noexcept nogil:
    """Parse a message up to its host; without a priority all of it is the rest."""
    cdef int32_t begin = line.at
    if peek(line) != 60 or not header(line, spans):
        line.at = begin
        memset(spans, 0xFF, REST * sizeof(Span))
    rest(line, &spans[REST])
    leave_dashes_out(line.data, spans, REST)
    return True


cdef bint take_line(Cursor* line, Span* spans, const void* how) noexcept nogil:
    cdef int32_t begin
    if not header(line, spans):
        return False
    begin = line.at
    if spans[VERSION].size < 0 or not structured_rest(line, spans):
        line.at = begin
        memset(&spans[PROGRAM], 0xFF, (FIELDS - PROGRAM) * sizeof(Span))
        tagged_rest(line, spans)
    leave_dashes_out(line.data, spans, FIELDS)
    return True


cdef bint header(Cursor* line, Span* spans) noexcept nogil:
    """Read priority, version, time and host. Return True if there is a priority or a time."""
    cdef bint prior = peek(line) == 60
    if prior:
        if not priority(line, &spans[PRIORITY]):
            return False
        if 49 <= peek(line) <= 57:
            version(line, &spans[VERSION])
    if not time(line, &spans[TIME], prior, spans[VERSION].size >= 0):
        return prior
    host(line, &spans[HOST], spans[VERSION].size >= 0)
    return True


cdef bint priority(Cursor* line, Span* span) noexcept nogil:
    """Read a priority in angle brackets; its span has no leading zeros."""
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


cdef void version(Cursor* line, Span* span) noexcept nogil:
    """Read a version and the space after it, if a date or a dash follows."""
    cdef int32_t begin = line.at
    span.start = begin
    line.at += 1
    if is_digit(peek(line)):
        line.at += 1
    span.size = line.at - begin
    if not (skip(line, 32) and (is_next(line, "9999-", 5) or is_next(line, "- ", 2))):
        line.at, span.size = begin, -1


cdef bint structured_rest(Cursor* line, Span* spans) noexcept nogil:
    """Read the part of RFC 5424 after the host."""
    if not (field(line, &spans[PROGRAM]) and field(line, &spans[PID])):
        return False
    if not (field(line, &spans[MSGID]) and structured(line, &spans[STRUCTURED_DATA])):
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


cdef void tagged_rest(Cursor* line, Span* spans) noexcept nogil:
    """Read the part of RFC 3164 after the host."""
    cdef Span program, pid
    cdef int32_t begin = line.at
    pid.start, pid.size = 0, -1
    if tag(line, &program, &pid):
        spans[PROGRAM], spans[PID] = program, pid
        skip(line, 32)
    else:
        line.at = begin
    rest(line, &spans[MESSAGE])


cdef bint structured(Cursor* line, Span* span) noexcept nogil:
    """Read a dash, or elements in brackets."""
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
    """Read the name of an element or a parameter. Return True if there is one."""
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
        # The byte after a backslash is not a quote; it may be the first one of a longer character.
        line.at += 2 if byte == 92 else 1
        if byte == 34:
            return True
    return False


cdef inline bint is_next(Cursor* line, const char* wanted, int size) noexcept nogil:
    """Return True if the next bytes match: ``9`` is a digit, ``A`` a capital, ``a`` a small letter, others themselves.
    """
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
    return True


cdef inline bint pattern(Cursor* line, const char* wanted, int size) noexcept nogil:
    """Read bytes that match a pattern of :func:`is_next`."""
    if not is_next(line, wanted, size):
        return False
    line.at += size
    return True


cdef bint time(Cursor* line, Span* span, bint prior, bint versioned) noexcept nogil:
    """Read a time, and the separator before the host. Return True if there is one.

    :param prior: True if there is a priority.
    :param versioned: True if there is a version, too.
    """
    cdef int32_t begin = line.at
    if prior and not versioned:
        skip(line, 32)
    span.start = line.at
    if known_time(line, prior, versioned) and ends(line, line.at):
        span.size = line.at - span.start
        skip(line, 58)
        skip(line, 32)
        return True
    line.at = begin
    return False


cdef inline bint ends(Cursor* line, int32_t at) noexcept nogil:
    """Return True if a time may end here: before the end, a space, or a colon followed by either."""
    if at < line.end and line.data[at] == 58:
        at += 1
    return at == line.end or line.data[at] == 32


cdef bint known_time(Cursor* line, bint prior, bint versioned) noexcept nogil:
    if versioned:
        return skip(line, 45) or iso_time(line, True)
    if is_next(line, "9999-", 5):
        return iso_time(line, prior)
    return classic_time(line)


cdef bint iso_time(Cursor* line, bint prior) noexcept nogil:
    """Read a time of ISO 8601; after a priority it may have a space in it."""
    if not pattern(line, "9999-99-99", 10):
        return False
    if not (skip(line, 84) or (prior and skip(line, 32))):
        return False
    return pattern(line, "99", 2) and past_hour(line)


cdef bint classic_time(Cursor* line) noexcept nogil:
    """Read a time of RFC 3164, with or without a year."""
    cdef bint dated = pattern(line, "9999 ", 5)
    if not pattern(line, "Aaa ", 4):
        return False
    skip(line, 32)
    if not digits(line) or not skip(line, 32):
        return False
    if not dated:
        dated = pattern(line, "9999 ", 5)
        if not (digits(line) and past_hour(line)):
            return False
        if is_next(line, " 2099", 5) and ends(line, line.at + 5):
            line.at += 5
        return True
    return digits(line) and past_hour(line)


cdef inline bint digits(Cursor* line) noexcept nogil:
    """Read one digit or two."""
    return pattern(line, "9", 1) and (pattern(line, "9", 1) or True)


cdef bint past_hour(Cursor* line) noexcept nogil:
    """Read minutes, seconds, their fraction and a zone."""
    cdef int count = 0
    if not pattern(line, ":99:99", 6):
        return False
    if skip(line, 46) or skip(line, 44):
        while is_digit(peek(line)):
            line.at += 1
            count += 1
        if not 1 <= count <= MOST_DIGITS:
            return False
    zone(line)
    return True


cdef void zone(Cursor* line) noexcept nogil:
    """Read a zone, if there is one."""
    cdef int32_t begin = line.at
    skip(line, 32)
    if not (skip(line, 90) or pattern(line, "UTC", 3) or pattern(line, "GMT", 3) or offset(line)):
        line.at = begin
    elif not ends(line, line.at):
        line.at = begin


cdef bint offset(Cursor* line) noexcept nogil:
    return (skip(line, 43) or skip(line, 45)) and (pattern(line, "9999", 4) or pattern(line, "99:99", 5))


cdef void host(Cursor* line, Span* span, bint versioned) noexcept nogil:
    """Read a host and the space after it, if there is one."""
    span.start = line.at
    if versioned:
        word(line, span)
    else:
        while line.at < line.end and is_of_host(line.data[line.at]):
            line.at += 1
        if line.at > span.start and line.data[line.at - 1] == 58:
            line.at = span.start
    span.size = line.at - span.start
    if span.size == 0 or not (skip(line, 32) or line.at == line.end):
        line.at, span.size = span.start, -1


cdef inline bint is_of_host(uint8_t byte) noexcept nogil:
    """Return True if a host may contain it: neither white space nor one of ``[](){}"'<>=,;|``."""
    if byte <= 32:
        return not is_space(byte)
    if byte == 34 or 39 <= byte <= 41 or byte == 44 or 59 <= byte <= 62:
        return False
    return byte != 91 and byte != 93 and not 123 <= byte <= 125


cdef bint tag(Cursor* line, Span* program, Span* pid) noexcept nogil:
    """Read a program, the text in brackets after it, and a colon."""
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
