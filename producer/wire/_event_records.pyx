# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of ``event_records.py``.

All records are measured first; then each piece is written into memory of exactly its size. All pointers refer to
``bytes``, which cannot change in between.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr

from ._bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, Text, delimited, owned, put_head, put_text, put_varint, text_of, width,
)
from ._escaped cimport escaped_size, is_ascii, put_escaped

from .protobuf import delimited as delimited_bytes


cdef enum:
    ABSENT = 0xFFFFFFFF


cdef struct Field:
    # The bytes before the length of a value, the sizes, and the next value. `stride` is 0 if all events have one value.
    Text name
    const uint32_t* sizes
    const uint8_t* values
    size_t stride


cdef struct Row:
    # The measured size of an event's log, and that of its body as text.
    size_t log
    size_t text


cdef struct Events:
    # All events of a call. `at` is the start of the next body in the block.
    Text block
    const uint64_t* ends
    size_t count
    Text key
    Field* fields
    size_t field_count
    const uint64_t* seconds
    size_t seconds_stride
    const uint32_t* nanos
    size_t nanos_stride
    Row* rows
    size_t at


def encode_events(
    bytes block not None,
    bytes ends not None,
    size_t count,
    bytes key not None,
    fields,
    bytes seconds not None,
    bytes nanos not None,
    size_t most_bytes,
    size_t most_logs,
):
    cdef Events events
    cdef bytes body = delimited_bytes(0x0A, key) + b"\x12"
    cdef list names = [delimited_bytes(0x0A, name) + b"\x12" for name, _ in fields]
    cdef bytes room = owned(PyBytes_FromStringAndSize(NULL, len(names) * sizeof(Field)))
    cdef bytes rows = owned(PyBytes_FromStringAndSize(NULL, count * sizeof(Row)))
    cdef bint fits
    events.block, events.count, events.key, events.at = text_of(block), count, text_of(body), 0
    events.ends = <const uint64_t*> data_of(ends) if ends else NULL
    if ends and len(ends) != <Py_ssize_t> (8 * count):
        raise ValueError(f"{len(ends) // 8} ends of {count} bodies")
    events.seconds, events.seconds_stride = <const uint64_t*> data_of(seconds), stride(len(seconds), 8, count)
    events.nanos, events.nanos_stride = <const uint32_t*> data_of(nanos), stride(len(nanos), 4, count)
    events.fields, events.field_count = <Field*> data_of(room), len(names)
    events.rows = <Row*> data_of(rows)
    set_fields(&events, fields, names)
    with nogil:
        fits = measure(&events)
    if not fits:
        raise ValueError(f"the bodies are no {count} in {len(block)} bytes")
    return pieces_of(&events, most_bytes, most_logs)


cdef inline char* data_of(bytes data) noexcept:
    return PyBytes_AS_STRING(<PyObject*> data)


cdef size_t stride(size_t size, size_t each, size_t count) except? 2:
    """Return the distance between the numbers of two events; 0 if all events have one number."""
    if size == each:
        return 0
    if size != each * count:
        raise ValueError(f"{size // each} values for {count} events")
    return 1


cdef set_fields(Events* events, fields, list names):
    cdef size_t place, row, total, known
    cdef Field* field
    cdef bytes sizes, values
    for place in range(events.field_count):
        field = &events.fields[place]
        sizes, values = fields[place][1].sizes, fields[place][1].data
        field.name, field.stride = text_of(names[place]), stride(len(sizes), 4, events.count)
        field.sizes, field.values = <const uint32_t*> data_of(sizes), <const uint8_t*> data_of(values)
        total, known = 0, len(sizes) // 4
        for row in range(known):
            total += 0 if field.sizes[row] == ABSENT else field.sizes[row]
        if total != <size_t> len(values):
            raise ValueError(f"values of {total} bytes are not {len(values)} bytes")


cdef bint next_body(Events* events, size_t row, Text* body) noexcept nogil:
    """Find the body of the next event. Return True if there is one."""
    cdef size_t end, at = events.at
    cdef const uint8_t* newline
    body.data = events.block.data + at
    if events.ends != NULL:
        end = events.ends[row]
        if not at <= end <= events.block.size:
            return False
        body.size, events.at = end - at, end
        return True
    if at > events.block.size:
        return False
    newline = <const uint8_t*> memchr(body.data, 10, events.block.size - at)
    end = events.block.size if newline == NULL else newline - events.block.data
    body.size, events.at = end - at, end + 1
    if body.size and body.data[body.size - 1] == 13:
        body.size -= 1
    return True


cdef inline size_t content_size(Text name, size_t text) noexcept nogil:
    return name.size + width(text) + text


cdef bint measure(Events* events) noexcept nogil:
    """Measure all records. Return False if a body is outside of the block."""
    cdef size_t row, place, size
    cdef const Field* field
    cdef Text body
    cdef Row* measured
    for row in range(events.count):
        if not next_body(events, row, &body):
            return False
        measured = &events.rows[row]
        measured.text = body.size if is_ascii(body) else escaped_size(body)
        measured.log = 1 + width(events.seconds[row * events.seconds_stride])
        measured.log += delimited(content_size(events.key, measured.text))
        measured.log += 5 if events.nanos[row * events.nanos_stride] else 0
        for place in range(events.field_count):
            field = &events.fields[place]
            size = field.sizes[row * field.stride]
            if size != ABSENT:
                measured.log += delimited(content_size(field.name, size))
    events.at = 0
    return True


cdef list pieces_of(Events* events, size_t most_bytes, size_t most_logs):
    cdef list pieces = []
    cdef size_t row = 0, stop, size
    cdef PyObject* records
    cdef uint8_t* data
    while row < events.count:
        stop, size = row + 1, delimited(events.rows[row].log)
        while stop < events.count and stop - row < most_logs:
            if size + delimited(events.rows[stop].log) > most_bytes:
                break
            size += delimited(events.rows[stop].log)
            stop += 1
        records = PyBytes_FromStringAndSize(NULL, size)
        data = <uint8_t*> PyBytes_AS_STRING(records)
        with nogil:
            write(events, row, stop, data)
        pieces.append((owned(records), stop - row))
        row = stop
    return pieces


cdef void write(Events* events, size_t row, size_t stop, uint8_t* at) noexcept nogil:
    cdef uint32_t nanos
    cdef size_t place
    while row < stop:
        at = put_head(at, 0x0A, events.rows[row].log)
        at[0] = 0x08
        at = put_varint(at + 1, events.seconds[row * events.seconds_stride])
        at = put_body(at, events, row)
        for place in range(events.field_count):
            at = put_field(at, &events.fields[place], row)
        nanos = events.nanos[row * events.nanos_stride]
        if nanos:
            at[0], at[1], at[2], at[3], at[4] = 0x25, nanos & 255, nanos >> 8 & 255, nanos >> 16 & 255, nanos >> 24
            at += 5
        row += 1


cdef inline uint8_t* put_body(uint8_t* at, Events* events, size_t row) noexcept nogil:
    cdef size_t text = events.rows[row].text
    cdef Text body
    next_body(events, row, &body)
    at = put_head(at, 0x12, content_size(events.key, text))
    at = put_varint(put_text(at, events.key), text)
    return put_text(at, body) if text == body.size else put_escaped(at, at + text, body)


cdef inline uint8_t* put_field(uint8_t* at, Field* field, size_t row) noexcept nogil:
    cdef Text value
    value.size = field.sizes[row * field.stride]
    if value.size == ABSENT:
        return at
    value.data = field.values
    field.values += value.size * field.stride
    at = put_head(at, 0x12, content_size(field.name, value.size))
    return put_text(put_varint(put_text(at, field.name), value.size), value)
