# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of ``encode_log``: encodes a dict of plain values without Python code.

A first pass examines all items, and borrows them; a second one writes them. In between, nothing may run that could
change the dict: no Python code, no garbage collection. A value that needs Python (``text.py``) is converted before
that, in a copy of the dict. For other unusual or invalid logs, the pure implementation is called.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, strlen

from ._bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, Text, delimited, owned, put_head, put_text, put_varint, reserved, width,
)

from ..model.errors import InvalidArgumentError
from ..model.records import LogItem
from .log_group import encode_log as encode_in_python
from .text import data_of, time_of


cdef extern from "Python.h":
    bint PyBytes_CheckExact(PyObject*)
    bint PyFloat_CheckExact(PyObject*)
    bint PyLong_CheckExact(PyObject*)
    bint PyUnicode_CheckExact(PyObject*)
    bint PyUnicode_IS_COMPACT(PyObject*)
    bint PyUnicode_IS_COMPACT_ASCII(PyObject*)
    int PyUnicode_KIND(PyObject*)
    void* PyUnicode_DATA(PyObject*)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject*)
    Py_ssize_t PyBytes_GET_SIZE(PyObject*)
    double PyFloat_AS_DOUBLE(PyObject*)
    long long PyLong_AsLongLongAndOverflow(PyObject*, int*)
    int PyDict_Next(PyObject*, Py_ssize_t*, PyObject**, PyObject**)
    char* PyOS_double_to_string(double, char, int, int, int*)
    int Py_DTSF_ADD_DOT_0
    void PyMem_Free(void*)
    void PyErr_Clear()
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False


def encode_log(log, now, nanos=0, fallback=None):
    cdef Log fields
    cdef Moment time
    contents = log.contents if type(log) is LogItem else log
    if type(contents) is not dict:
        return encode_in_python(log, now, nanos, fallback)
    time.seconds, time.nanos = now, nanos
    if contents is not log:
        time = moment_of(log, time)
    if not scan(<PyObject*> contents, &fields):
        contents = simplified(contents, fallback)
        if contents is None:
            return encode_in_python(log, now, nanos, fallback)
        if not scan(<PyObject*> contents, &fields):
            raise AssertionError("a simplified log is simple")
    return record_of(&fields, time)


cdef Moment moment_of(item, Moment now) except *:
    """Return the time of a ``LogItem``; ``time_of`` is called if it is not two plain numbers."""
    cdef Moment time
    seconds, nanos = item.time, item.time_ns
    if type(seconds) is not int or type(nanos) is not int or not (
        0 <= seconds <= 4294967295 and 0 <= nanos <= 999999999
    ):
        seconds, nanos = time_of(item, now.seconds, now.nanos)
    time.seconds, time.nanos = seconds, nanos
    return time


cdef object record_of(const Log* fields, Moment time):
    cdef PyObject* record = PyBytes_FromStringAndSize(NULL, delimited(log_size(fields, time)))
    put_record(<uint8_t*> PyBytes_AS_STRING(record), fields, time)
    return owned(record)


cdef object simplified(dict log, fallback):
    """Return a copy of the log with plain values; None if only the pure implementation can encode it.

    :raises InvalidArgumentError: a value cannot become text.
    """
    cdef Log scratch
    cdef Part part
    copy = log.copy()
    if len(copy) > MOST_FIELDS:
        return None
    for name in copy:
        if not scan_name(<PyObject*> name, &part):
            return None
    simple = {}
    for name, value in copy.items():
        scratch.used = 0
        if value is None:
            continue
        if not scan_value(<PyObject*> value, &part, &scratch):
            try:
                value = data_of(value, name, None if fallback is None else fallback.default)
            except InvalidArgumentError:
                if fallback is None or not fallback.lenient:
                    raise
                return None
            if value is None:
                continue
        simple[name] = value
    return simple


cdef bint scan(PyObject* log, Log* out) noexcept:
    """Examine a dict. Return False if it is not plain."""
    cdef Py_ssize_t place = 0
    cdef PyObject* name
    cdef PyObject* value
    cdef Pair* pair = out.pairs
    out.size, out.used, out.count = 0, 0, 0
    while PyDict_Next(log, &place, &name, &value):
        if value == Py_None and PyUnicode_CheckExact(name):
            continue
        if out.count == MOST_FIELDS or not scan_name(name, &pair.name) or not scan_value(value, &pair.value, out):
            return False
        pair.content = delimited(pair.name.size) + delimited(pair.value.size)
        out.size += delimited(pair.content)
        out.count += 1
        pair += 1
    return True


cdef inline bint scan_name(PyObject* text, Part* part) noexcept:
    """Examine a name. Return False also for a reserved one, which the pure implementation renames."""
    if not scan_text(text, part):
        return False
    if part.text == NULL:
        return not reserved(part.data, part.size)
    return not begins_as_tag(text)


cdef bint begins_as_tag(PyObject* text) noexcept:
    """Return True if a name that is not ASCII begins like that of a tag."""
    cdef const char* prefix = b"__tag__:"
    cdef const uint8_t* narrow = <const uint8_t*> PyUnicode_DATA(text)
    cdef const uint16_t* wide = <const uint16_t*> narrow
    cdef const uint32_t* widest = <const uint32_t*> narrow
    cdef int kind = PyUnicode_KIND(text), place
    if PyUnicode_GET_LENGTH(text) < 8:
        return False
    for place in range(8):
        if (narrow[place] if kind == 1 else wide[place] if kind == 2 else widest[place]) != <uint8_t> prefix[place]:
            return False
    return True


cdef inline bint scan_text(PyObject* text, Part* part) noexcept:
    if not PyUnicode_CheckExact(text):
        return False
    if PyUnicode_IS_COMPACT_ASCII(text):
        part.data, part.size, part.text = <const uint8_t*> PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text), NULL
        return True
    if not PyUnicode_IS_COMPACT(text):
        return False
    part.data, part.text = NULL, text
    return utf_8_size(text, &part.size)


cdef inline bint scan_value(PyObject* value, Part* part, Log* log) noexcept:
    if PyUnicode_CheckExact(value):
        return scan_text(value, part)
    part.text = NULL
    if PyLong_CheckExact(value):
        return scan_integer(value, part, log)
    if PyFloat_CheckExact(value):
        return scan_float(value, part, log)
    if value == Py_True or value == Py_False:
        part.data, part.size = <const uint8_t*> (b"true" if value == Py_True else b"false"), 4 + (value == Py_False)
        return True
    if PyBytes_CheckExact(value):
        part.data, part.size = <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        return True
    return False


cdef bint scan_integer(PyObject* value, Part* part, Log* log) noexcept:
    cdef int overflow
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef unsigned long long rest = <unsigned long long> number
    cdef uint8_t* end = log.numbers + log.used + LONGEST_NUMBER
    cdef uint8_t* at = end
    if overflow:
        return False
    if number < 0:
        rest = 0 - rest
    while True:
        at -= 1
        at[0] = 48 + rest % 10
        rest //= 10
        if rest == 0:
            break
    if number < 0:
        at -= 1
        at[0] = 45
    part.data, part.size = at, end - at
    log.used += LONGEST_NUMBER
    return True


cdef bint scan_float(PyObject* value, Part* part, Log* log) noexcept:
    cdef char* text = PyOS_double_to_string(PyFloat_AS_DOUBLE(value), b"r", 0, Py_DTSF_ADD_DOT_0, NULL)
    if text == NULL:
        PyErr_Clear()
        return False
    part.data, part.size = log.numbers + log.used, strlen(text)
    memcpy(log.numbers + log.used, text, part.size)
    log.used += LONGEST_NUMBER
    PyMem_Free(text)
    return True


cdef bint utf_8_size(PyObject* text, size_t* size) noexcept:
    """Measure a text as UTF-8. Return False if it has a lone surrogate, which UTF-8 cannot encode."""
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text), place
    cdef const uint8_t* narrow = <const uint8_t*> PyUnicode_DATA(text)
    cdef const uint16_t* wide = <const uint16_t*> narrow
    cdef const uint32_t* widest = <const uint32_t*> narrow
    cdef uint32_t character
    cdef int kind = PyUnicode_KIND(text)
    size[0] = length
    for place in range(length):
        character = narrow[place] if kind == 1 else wide[place] if kind == 2 else widest[place]
        if 0xD800 <= character <= 0xDFFF:
            return False
        size[0] += (character >= 0x80) + (character >= 0x800) + (character >= 0x10000)
    return True


cdef uint8_t* put_utf_8(uint8_t* at, PyObject* text) noexcept:
    cdef Py_ssize_t place
    cdef const uint8_t* narrow = <const uint8_t*> PyUnicode_DATA(text)
    cdef const uint16_t* wide = <const uint16_t*> narrow
    cdef const uint32_t* widest = <const uint32_t*> narrow
    cdef uint32_t character
    cdef int kind = PyUnicode_KIND(text)
    for place in range(PyUnicode_GET_LENGTH(text)):
        character = narrow[place] if kind == 1 else wide[place] if kind == 2 else widest[place]
        if character < 0x80:
            at[0] = character
            at += 1
        elif character < 0x800:
            at[0], at[1] = 0xC0 | character >> 6, 0x80 | character & 0x3F
            at += 2
        elif character < 0x10000:
            at[0], at[1], at[2] = 0xE0 | character >> 12, 0x80 | character >> 6 & 0x3F, 0x80 | character & 0x3F
            at += 3
        else:
            at[0], at[1] = 0xF0 | character >> 18, 0x80 | character >> 12 & 0x3F
            at[2], at[3] = 0x80 | character >> 6 & 0x3F, 0x80 | character & 0x3F
            at += 4
    return at


cdef size_t log_size(const Log* log, Moment time) noexcept nogil:
    """Return the size of a log without its tag and length."""
    return 1 + width(time.seconds) + log.size + (5 if time.nanos else 0)


cdef inline uint8_t* put_part(uint8_t* at, uint8_t tag, const Part* part) noexcept:
    cdef Text plain
    at = put_head(at, tag, part.size)
    if part.text != NULL:
        return put_utf_8(at, part.text)
    plain.data, plain.size = part.data, part.size
    return put_text(at, plain)


cdef uint8_t* put_record(uint8_t* at, const Log* log, Moment time) noexcept:
    """Write a log into sufficient memory. Return the position after it."""
    cdef Py_ssize_t place
    cdef const Pair* pair
    at = put_head(at, 0x0A, log_size(log, time))
    at[0] = 0x08
    at = put_varint(at + 1, time.seconds)
    for place in range(log.count):
        pair = &log.pairs[place]
        at = put_head(at, 0x12, pair.content)
        at = put_part(at, 0x0A, &pair.name)
        at = put_part(at, 0x12, &pair.value)
    if time.nanos:
        at[0] = 0x25
        for place in range(4):
            at[1 + place] = time.nanos >> 8 * place & 0xFF
        at += 5
    return at
