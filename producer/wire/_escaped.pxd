# cython: language_level=3
"""Helpers of the native encoders of bodies: bytes as text, with ``\\xNN`` for each byte that is not UTF-8."""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from ._bytes cimport Text


cdef inline bint is_ascii(Text line) noexcept nogil:
    cdef uint8_t seen = 0
    cdef size_t at
    for at in range(line.size):
        seen |= line.data[at]
    return seen < 128


cdef inline size_t character_size(const uint8_t* at, size_t left) noexcept nogil:
    """Return the bytes of the UTF-8 character at a position; 0 if there is none."""
    cdef uint8_t first = at[0]
    cdef uint8_t lowest = 0x80, highest = 0xBF
    cdef size_t length, place
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return 0
    length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if left < length:
        return 0
    # Reject overlong forms, halves of surrogate pairs, and values beyond the last code point.
    if first == 0xE0:
        lowest = 0xA0
    elif first == 0xED:
        highest = 0x9F
    elif first == 0xF0:
        lowest = 0x90
    elif first == 0xF4:
        highest = 0x8F
    if at[1] < lowest or at[1] > highest:
        return 0
    for place in range(2, length):
        if at[place] & 0xC0 != 0x80:
            return 0
    return length


cdef inline size_t escaped_size(Text line) noexcept nogil:
    """Return the size with four bytes for each byte that is not UTF-8."""
    cdef size_t at = 0, size = line.size, character
    while at < line.size:
        character = character_size(line.data + at, line.size - at)
        if character == 0:
            size += 3
            character = 1
        at += character
    return size


cdef inline uint8_t* put_escaped(uint8_t* out, uint8_t* end, Text line) noexcept nogil:
    """Copy a line, with four bytes for each byte that is not UTF-8.

    It never writes past the end, even if another thread changes the line meanwhile, which it must not.
    """
    cdef const char* digits = "0123456789abcdef"
    cdef size_t at = 0, character
    while at < line.size:
        character = character_size(line.data + at, line.size - at)
        if out + (character or 4) > end:
            break
        if character:
            memcpy(out, line.data + at, character)
            out += character
            at += character
        else:
            out[0], out[1], out[2], out[3] = 0x5C, 0x78, digits[line.data[at] >> 4], digits[line.data[at] & 15]
            out += 4
            at += 1
    while out < end:
        out[0] = 0x3F
        out += 1
    return end
