# cython: language_level=3
"""Helpers of the native encoders: write the parts of a record into sufficient memory, or into new bytes objects."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy


cdef extern from "Python.h":
    PyObject* PyBytes_FromStringAndSize(const char*, Py_ssize_t) except NULL
    char* PyBytes_AS_STRING(PyObject*)
    int _PyBytes_Resize(PyObject**, Py_ssize_t) except -1


cdef struct Text:
    # Borrowed bytes.
    const uint8_t* data
    size_t size


cdef inline Text text_of(bytes data) noexcept:
    cdef Text text
    text.data, text.size = <const uint8_t*> PyBytes_AS_STRING(<PyObject*> data), len(data)
    return text


cdef inline object owned(PyObject* new):
    """Return a new object, whose only reference passes to the result."""
    cdef object known = <object> new
    Py_DECREF(known)
    return known


cdef inline int reserved(const uint8_t* name, size_t size) noexcept nogil:
    """Return 0 for a free name, 1 for one that gets an underscore at its end, 2 for one that gets it in front
    (`reserved.py`).
    """
    if size < 8 or name[0] != 95 or name[1] != 95:
        return 0
    if memcmp(name, b"__tag__:", 8) == 0:
        return 2
    if size == 8:
        return memcmp(name, b"__time__", 8) == 0
    if size == 9:
        return memcmp(name, b"__topic__", 9) == 0
    if size == 10:
        return memcmp(name, b"__source__", 10) == 0
    return size == 16 and memcmp(name, b"__time_ns_part__", 16) == 0


cdef inline size_t width(size_t number) noexcept nogil:
    """Return the bytes of a varint."""
    cdef size_t size = 1
    if number < 1 << 14:
        return 1 + (number >= 1 << 7)
    while number >= 128:
        number >>= 7
        size += 1
    return size


cdef inline size_t delimited(size_t size) noexcept nogil:
    """Return the bytes of a field with a payload of ``size`` bytes: tag, length and payload."""
    return 1 + width(size) + size


cdef inline uint8_t* put_head(uint8_t* at, uint8_t tag, size_t size) noexcept nogil:
    """Write a field's tag and length. Return the position after them."""
    at[0] = tag
    return put_varint(at + 1, size)


cdef inline uint8_t* put_varint(uint8_t* at, size_t number) noexcept nogil:
    while number >= 128:
        at[0] = <uint8_t> (number | 128)
        at += 1
        number >>= 7
    at[0] = <uint8_t> number
    return at + 1


cdef inline uint8_t* put_text(uint8_t* at, Text text) noexcept nogil:
    """Copy bytes. Short texts are copied in a loop, as a call would take longer."""
    cdef size_t size = text.size
    if size > 32:
        memcpy(at, text.data, size)
    elif size >= 16:
        memcpy(at, text.data, 16)
        memcpy(at + size - 16, text.data + size - 16, 16)
    elif size >= 8:
        memcpy(at, text.data, 8)
        memcpy(at + size - 8, text.data + size - 8, 8)
    elif size >= 4:
        memcpy(at, text.data, 4)
        memcpy(at + size - 4, text.data + size - 4, 4)
    elif size:
        at[0], at[size >> 1], at[size - 1] = text.data[0], text.data[size >> 1], text.data[size - 1]
    return at + size
