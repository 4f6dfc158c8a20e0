# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of ``access_log.py``."""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memset

from ._bytes cimport Text, text_of
from ._line_parts cimport Cursor, is_digit, is_space, leave_dashes_out, skip, split_fields, word
from ._text_columns cimport Span

from .access_log import FIELDS as NAMES
from .text_column import SplitLines, TextColumn


cdef enum:
    # The positions of the fields in a line's spans.
    VHOST, REMOTE_ADDR, IDENT, REMOTE_USER, TIME, REQUEST, STATUS, BYTES, REFERER, USER_AGENT, EXTRA
    METHOD, URI, PROTOCOL
    FIELDS


def split_access(offsets, data, bytes others not None):
    cdef Text skipped = text_of(others)
    return SplitLines(*split_fields(TextColumn, offsets, data, NAMES, take_line, &skipped, False))


cdef bint take_line(Cursor* line, Span* spans, const void* how) noexcept nogil:
    """Parse a line that begins with none of the bytes to skip."""
    cdef const Text* others = <const Text*> how
    if line.at < line.end and memchr(others.data, line.data[line.at], others.size) != NULL:
        return False
    if not with_host(line[0], spans):
        memset(spans, 0xFF, FIELDS * sizeof(Span))
        if not from_address(line[0], spans):
            return False
    split_request(line.data, spans)
    leave_dashes_out(line.data, spans, FIELDS)
    return True


cdef inline bint digits(Cursor* line, Span* span) noexcept nogil:
    """Read digits. Return True if there are any."""
    span.start = line.at
    while line.at < line.end and is_digit(line.data[line.at]):
        line.at += 1
    span.size = line.at - span.start
    return span.size > 0


cdef inline bint quoted(Cursor* line, Span* span) noexcept nogil:
    """Read a quoted text with its quotes."""
    if not skip(line, 34):
        return False
    span.start = line.at
    while line.at < line.end:
        if line.data[line.at] == 34:
            span.size = line.at - span.start
            line.at += 1
            return True
        # The byte after a backslash is not a quote; it may be the first one of a longer character.
        line.at += 2 if line.data[line.at] == 92 else 1
    return False


cdef bint with_host(Cursor line, Span* spans) noexcept nogil:
    """Parse a line that begins with a virtual host and a port."""
    cdef Span port
    cdef uint8_t byte
    cdef Span* host = &spans[VHOST]
    host.start = line.at
    while line.at < line.end:
        byte = line.data[line.at]
        if byte == 58 or byte == 34 or is_space(byte):
            break
        line.at += 1
    if line.at == host.start or not skip(&line, 58) or not digits(&line, &port):
        return False
    host.size = line.at - host.start
    return skip(&line, 32) and from_address(line, spans)


cdef bint from_address(Cursor line, Span* spans) noexcept nogil:
    """Parse a line from the client's address on."""
    if not (word(&line, &spans[REMOTE_ADDR]) and skip(&line, 32)):
        return False
    if not (word(&line, &spans[IDENT]) and skip(&line, 32)):
        return False
    if not (word(&line, &spans[REMOTE_USER]) and skip(&line, 32)):
        return False
    return time_of(&line, &spans[TIME]) and skip(&line, 32) and from_request(line, spans)


cdef bint time_of(Cursor* line, Span* span) noexcept nogil:
    """Read a text in brackets with its brackets."""
    if not skip(line, 91):
        return False
    span.start = line.at
    while line.at < line.end and line.data[line.at] != 93:
        line.at += 1
    span.size = line.at - span.start
    return span.size > 0 and skip(line, 93)


cdef bint from_request(Cursor line, Span* spans) noexcept nogil:
    if not (quoted(&line, &spans[REQUEST]) and skip(&line, 32)):
        return False
    if not (status(&line, &spans[STATUS]) and skip(&line, 32)):
        return False
    if not digits(&line, &spans[BYTES]):
        spans[BYTES].size = 1
        if not skip(&line, 45):
            return False
    if line.at == line.end:
        return True
    if agents(line, spans):
        return True
    spans[REFERER].size = spans[USER_AGENT].size = -1
    return extra(line, spans)


cdef bint status(Cursor* line, Span* span) noexcept nogil:
    span.start = line.at
    span.size = 3
    if line.end - line.at >= 3 and is_digit(line.data[line.at]):
        if is_digit(line.data[line.at + 1]) and is_digit(line.data[line.at + 2]):
            line.at += 3
            return True
    span.size = 1
    return skip(line, 45)


cdef bint agents(Cursor line, Span* spans) noexcept nogil:
    """Read the referer, the user agent, and the text after them."""
    if not (skip(&line, 32) and quoted(&line, &spans[REFERER])):
        return False
    if not (skip(&line, 32) and quoted(&line, &spans[USER_AGENT])):
        return False
    return line.at == line.end or extra(line, spans)


cdef bint extra(Cursor line, Span* spans) noexcept nogil:
    """Read the rest of the line after a space."""
    if not skip(&line, 32) or line.at == line.end:
        return False
    spans[EXTRA].start, spans[EXTRA].size = line.at, line.end - line.at
    return True


cdef void split_request(const uint8_t* data, Span* spans) noexcept nogil:
    cdef Cursor request
    cdef Span method, uri, protocol
    request.data, request.at = <uint8_t*> data, spans[REQUEST].start
    request.end = request.at + spans[REQUEST].size
    method.start = request.at
    while request.at < request.end and (65 <= data[request.at] <= 90 or data[request.at] == 95):
        request.at += 1
    method.size = request.at - method.start
    protocol.start, protocol.size = 0, -1
    if method.size == 0 or not skip(&request, 32) or not word(&request, &uri):
        return
    if request.at < request.end and not (skip(&request, 32) and version(&request, &protocol)):
        return
    if request.at == request.end:
        spans[METHOD], spans[URI], spans[PROTOCOL] = method, uri, protocol


cdef bint version(Cursor* request, Span* span) noexcept nogil:
    """Read ``HTTP/`` and digits with points."""
    cdef const char* name = "HTTP/"
    cdef int place
    span.start = request.at
    for place in range(5):
        if not skip(request, name[place]):
            return False
    while request.at < request.end and (is_digit(request.data[request.at]) or request.data[request.at] == 46):
        request.at += 1
    span.size = request.at - span.start
    return span.size > 5
