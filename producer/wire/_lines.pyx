# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of ``lines.py``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint8_t
from libc.string cimport memchr

from ._bytes cimport (
    _PyBytes_Resize, PyBytes_AS_STRING, PyBytes_FromStringAndSize, Text, delimited, owned, put_head, put_text, put_varint,
    text_of, width,
)
from ._escaped cimport escaped_size, is_ascii, put_escaped

from .lines import EncodedLines
from .protobuf import delimited as delimited_bytes, varint


cdef extern from "Python.h":
    ctypedef struct PyVarObject:
        pass
    void Py_SET_SIZE(PyVarObject*, Py_ssize_t)


cdef enum:
    # Minimum memory in addition to that of the lines, bytes.
    LEAST = 4096


cdef struct Around:
    # The bytes around the text in every record of a call: Time, name and tag of the value, Time_ns.
    Text time
    Text name
    Text nanos


cdef struct Out:
    # Memory for records, with its used bytes and the number of records.
    uint8_t* data
    size_t capacity
    size_t size
    Py_ssize_t lines


def encode_lines(
    block,
    Py_ssize_t start,
    bytes key not None,
    seconds,
    nanos,
    Py_ssize_t most_bytes,
    Py_ssize_t most_lines,
    bint final,
):
    cdef bytes time = b"\x08" + varint(seconds), name = delimited_bytes(0x0A, key) + b"\x12"
    cdef bytes time_ns = b"\x25" + nanos.to_bytes(4, "little") if nanos else b""
    cdef Around around
    cdef Py_buffer view
    cdef Py_ssize_t left, most
    around.time, around.name, around.nanos = text_of(time), text_of(name), text_of(time_ns)
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        left = max(0, view.len - start)
        # The largest record is an empty one, plus two lengths of five bytes, plus four bytes per byte of the line.
        most = left * (<Py_ssize_t> record_size(0, &around) + 16) if left < most_bytes else most_bytes
        return encode_piece(&view, start, &around, max(0, min(most_bytes, most)), most_lines, final)
    finally:
        PyBuffer_Release(&view)


cdef object encode_piece(
    const Py_buffer* view, Py_ssize_t start, const Around* around, Py_ssize_t most, Py_ssize_t most_lines, bint final
):
    """Encode records up to a size; a larger record is a piece of its own.

    The records get slightly more memory than their lines, and more if the lines are short.
    """
    cdef Text block
    cdef Out out
    cdef Py_ssize_t end = start, left = max(0, view.len - start)
    cdef Py_ssize_t capacity = min(most, left + left // 4 + LEAST)
    cdef size_t missing = 0
    cdef PyObject* records = PyBytes_FromStringAndSize(NULL, capacity)
    block.data, block.size = <const uint8_t*> view.buf, view.len
    out.size = out.lines = 0
    while True:
        out.data, out.capacity, missing = <uint8_t*> PyBytes_AS_STRING(records), capacity, 0
        with nogil:
            end = encode(block, end, around, most_lines, final, &out, &missing)
        if not missing or (capacity >= most and out.lines):
            break
        if not out.lines:  # A record that is larger than a piece is a piece of its own.
            most = max(most, <Py_ssize_t> missing)
        capacity = min(most, max(2 * capacity, capacity + <Py_ssize_t> missing))
        _PyBytes_Resize(&records, capacity)
    if <Py_ssize_t> out.size >= capacity - capacity // 3:
        # The rest of the memory stays, untouched. If it were returned, the system would later take all of it back, and
        # make new pages for the next piece. The first access to these takes half as long as the encoding.
        PyBytes_AS_STRING(records)[out.size] = 0
        Py_SET_SIZE(<PyVarObject*> records, out.size)
    else:
        _PyBytes_Resize(&records, out.size)
    return EncodedLines(owned(records), out.lines, end)


cdef Py_ssize_t encode(
    Text block, size_t start, const Around* around, Py_ssize_t most_lines, bint final, Out* out, size_t* missing
) noexcept nogil:
    """Encode lines. Return the start of the next line.

    :param missing: set to the size of the record that did not fit.
    """
    cdef const uint8_t* found
    cdef size_t at = start, after, size
    cdef Text line
    while at < block.size and out.lines < most_lines:
        line.data = block.data + at
        found = <const uint8_t*> memchr(line.data, 10, block.size - at)
        if found != NULL:
            line.size = found - line.data
            after = at + line.size + 1
            if line.size and line.data[line.size - 1] == 13:
                line.size -= 1
        elif final:
            line.size = block.size - at
            after = block.size
        else:
            break
        size = put_line(line, around, out)
        if size:
            missing[0] = size
            break
        at = after
    return at


cdef inline size_t record_size(size_t text, const Around* around) noexcept nogil:
    return delimited(log_size(text, around))


cdef inline size_t log_size(size_t text, const Around* around) noexcept nogil:
    return around.time.size + delimited(content_size(text, around)) + around.nanos.size


cdef inline size_t content_size(size_t text, const Around* around) noexcept nogil:
    return around.name.size + width(text) + text


cdef inline size_t put_line(Text line, const Around* around, Out* out) noexcept nogil:
    """Append the record of a line. Return its size if it does not fit, else 0."""
    cdef size_t text = line.size if is_ascii(line) else escaped_size(line)
    cdef size_t record = record_size(text, around)
    cdef uint8_t* at = out.data + out.size
    if record > out.capacity - out.size:
        return record
    at = put_head(at, 0x0A, log_size(text, around))
    at = put_text(at, around.time)
    at = put_head(at, 0x12, content_size(text, around))
    at = put_text(at, around.name)
    at = put_varint(at, text)
    at = put_text(at, line) if text == line.size else put_escaped(at, at + text, line)
    put_text(at, around.nanos)
    out.size += record
    out.lines += 1
    return 0
