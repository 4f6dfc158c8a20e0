# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native encoder of columns: encodes records directly from Arrow's buffers, without the GIL.

The buffers are passed through Arrow's C data interface. The checks of Arrow's ``validate`` are relied on: buffers are
long enough, and the end of the last text is valid. Every other position is checked when the sizes are measured.

``measure`` computes the sizes. Then ``write`` writes the records of any rows, in any order, into memory of exactly that
size. The file has more than 400 lines because it measures and writes each of Arrow's layouts.

Source: arrow.apache.org, The Arrow C data interface, and the layouts of the columnar format.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport strcmp

from ._bytes cimport Text, delimited, put_head, put_text, put_varint, reserved, text_of, width

from .protobuf import delimited as delimited_bytes


cdef extern from *:
    """
    struct producer_schema { const char *format; };
    struct producer_array {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
    };
    """
    # Only the first members of both structs are declared.
    cdef struct producer_schema:
        const char* format
    cdef struct producer_array:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        const void** buffers


cdef enum Layout:
    NARROW
    WIDE
    VIEW


cdef struct Texts:
    # An array of strings of any layout.
    Layout layout
    int64_t length
    int64_t offset
    const uint8_t* validity
    const void** buffers
    int64_t last  # The end of the last text, or the number of buffers of views.


cdef struct Field:
    # A column; `name` is the bytes between the length of a content and the length of its text.
    Text name
    Texts texts
    const int64_t* index


cdef struct Entries:
    # A column of maps.
    const int64_t* places
    const uint8_t* valid
    Texts keys
    Texts items


cdef inline bint is_set(const uint8_t* bits, int64_t place) noexcept nogil:
    return bits[place >> 3] >> (place & 7) & 1


cdef inline bint is_null(const Texts* texts, int64_t place) noexcept nogil:
    return texts.validity != NULL and not is_set(texts.validity, texts.offset + place)


cdef inline bint find(const Texts* texts, int64_t place, Text* text) noexcept nogil:
    """Return True if there is a text, and set ``text`` to it."""
    cdef const int32_t* narrow
    cdef const int64_t* wide
    if is_null(texts, place):
        return False
    place += texts.offset
    if texts.layout == NARROW:
        narrow = <const int32_t*> texts.buffers[1] + place
        text.data = <const uint8_t*> texts.buffers[2] + narrow[0]
        text.size = narrow[1] - narrow[0]
    elif texts.layout == WIDE:
        wide = <const int64_t*> texts.buffers[1] + place
        text.data = <const uint8_t*> texts.buffers[2] + wide[0]
        text.size = wide[1] - wide[0]
    else:
        narrow = <const int32_t*> texts.buffers[1] + 4 * place
        text.size = narrow[0]
        # Short texts are stored in the view itself.
        text.data = <const uint8_t*> (narrow + 1)
        if narrow[0] > 12:
            text.data = <const uint8_t*> texts.buffers[2 + narrow[2]] + narrow[3]
    return True


cdef inline bint lies_inside(const Texts* texts, int64_t place) noexcept nogil:
    """Return True if a text that is not null is within the array's data."""
    cdef const int32_t* narrow
    cdef const int64_t* wide
    place += texts.offset
    if texts.layout == NARROW:
        narrow = <const int32_t*> texts.buffers[1] + place
        return 0 <= narrow[0] <= narrow[1] <= texts.last
    if texts.layout == WIDE:
        wide = <const int64_t*> texts.buffers[1] + place
        return 0 <= wide[0] <= wide[1] <= texts.last
    narrow = <const int32_t*> texts.buffers[1] + 4 * place
    if narrow[0] <= 12:
        return narrow[0] >= 0
    if not 0 <= narrow[2] < texts.last or narrow[3] < 0:
        return False
    return <int64_t> narrow[3] + narrow[0] <= (<const int64_t*> texts.buffers[2 + texts.last])[narrow[2]]


cdef inline bint find_inside(const Texts* texts, int64_t place, Text* text, bint* inside) noexcept nogil:
    """Like ``find``, but clear ``inside`` if the text is not within the array's data."""
    if is_null(texts, place):
        return False
    if not lies_inside(texts, place):
        inside[0] = False
        return False
    return find(texts, place, text)


cdef inline bint find_chosen(const Field* field, int64_t row, Text* text) noexcept nogil:
    if field.index == NULL:
        return find(&field.texts, row, text)
    row = field.index[row]
    return row != field.texts.length and find(&field.texts, row, text)


cdef inline size_t content_size(size_t name, size_t text) noexcept nogil:
    return name + width(text) + text


cdef inline size_t entry_size(size_t key, size_t item) noexcept nogil:
    return delimited(key) + delimited(item)


cdef bint add_sizes(const Field* field, size_t* sizes, int64_t count) noexcept nogil:
    """Add the size of a field to each row. Return True if all texts are within their data."""
    cdef const Texts* texts = &field.texts
    cdef const int32_t* ends
    cdef int64_t row, place
    cdef size_t name = field.name.size
    cdef bint inside = True
    cdef Text text
    if count and field.index == NULL and texts.layout == NARROW and texts.validity == NULL:  # By far the most common case.
        ends = <const int32_t*> texts.buffers[1] + texts.offset
        for row in range(count):
            inside &= ends[row] <= ends[row + 1]
            sizes[row] += delimited(content_size(name, ends[row + 1] - ends[row]))
        return inside and ends[0] >= 0 and ends[count] <= texts.last
    for row in range(count):
        place = row if field.index == NULL else field.index[row]
        if place != texts.length and find_inside(texts, place, &text, &inside):
            sizes[row] += delimited(content_size(name, text.size))
    return inside


cdef class Columns:
    """The columns of a batch, as texts.

    :param count: the number of rows.
    :param seconds: seconds since the epoch, int64; one for all rows, or one per row.
    :param nanos: nanoseconds within the second, one per row; None if all are 0.
    """

    cdef int64_t _count
    cdef const int64_t* _seconds
    cdef bint _one_time
    cdef const int64_t* _nanos
    cdef Field* _fields
    cdef Py_ssize_t _field_count
    cdef Entries _entries
    cdef bint _has_entries
    cdef size_t* _sizes  # The size of the log of each row, without its tag and length.
    cdef list _kept  # Keeps the objects alive that the pointers refer to.

    def __cinit__(self, Py_ssize_t count, seconds, nanos):
        self._kept = []
        self._count = count
        self._one_time = len(seconds) == 1
        self._seconds = <const int64_t*> self._numbers(seconds, 8 if self._one_time else 8 * count)
        self._nanos = NULL if nanos is None else <const int64_t*> self._numbers(nanos, 8 * count)

    def __dealloc__(self):
        free(self._fields)
        free(self._sizes)

    cdef void* _numbers(self, array, Py_ssize_t least) except? NULL:
        """Return the memory of an array, and keep it as long as this object."""
        cdef Py_buffer view
        PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
        try:
            if view.len < least:
                raise ValueError(f"an array of {view.len} bytes must have {least}")
            self._kept.append(memoryview(array))
            return view.buf
        finally:
            PyBuffer_Release(&view)

    cdef Texts _texts(self, array) except *:
        cdef Texts texts
        cdef producer_array* data
        schema, held = array.__arrow_c_array__()
        cdef const char* kind = (<producer_schema*> PyCapsule_GetPointer(schema, "arrow_schema")).format
        if strcmp(kind, "u") == 0 or strcmp(kind, "z") == 0:
            texts.layout = NARROW
        elif strcmp(kind, "U") == 0 or strcmp(kind, "Z") == 0:
            texts.layout = WIDE
        elif strcmp(kind, "vu") == 0 or strcmp(kind, "vz") == 0:
            texts.layout = VIEW
        else:
            raise TypeError(f"an array of format {kind!r} holds no texts")
        data = <producer_array*> PyCapsule_GetPointer(held, "arrow_array")
        texts.length, texts.offset, texts.buffers = data.length, data.offset, data.buffers
        texts.validity = NULL if data.null_count == 0 else <const uint8_t*> data.buffers[0]
        if texts.layout == VIEW:
            texts.last = data.n_buffers - 3  # The last buffer has the lengths of the others.
        elif texts.length == 0:
            texts.last = 0
        elif texts.layout == NARROW:
            texts.last = (<const int32_t*> data.buffers[1])[data.offset + data.length]
        else:
            texts.last = (<const int64_t*> data.buffers[1])[data.offset + data.length]
        self._kept.append(held)
        return texts

    def add_field(self, bytes key not None, texts, index):
        """Add a field of each row: its name, its texts, and the index of the text of each row, int64, or None."""
        cdef bytes name = delimited_bytes(0x0A, key) + b"\x12"
        cdef Field field
        cdef Field* fields
        field.name, field.texts, field.index = text_of(name), self._texts(texts), NULL
        if index is not None:
            field.index = <const int64_t*> self._numbers(index, 8 * self._count)
            self._check(field.index, field.texts.length)
        elif field.texts.length < self._count:
            raise ValueError(f"a column of {field.texts.length} texts must have {self._count}")
        fields = <Field*> realloc(self._fields, (self._field_count + 1) * sizeof(Field))
        if fields == NULL:
            raise MemoryError
        fields[self._field_count] = field
        self._fields = fields
        self._field_count += 1
        self._kept.append(name)

    cdef _check(self, const int64_t* index, int64_t most):
        cdef int64_t row
        for row in range(self._count):
            if not 0 <= index[row] <= most:
                raise IndexError(f"row {row}: position {index[row]} in a dictionary of {most}")

    def add_entries(self, places, valid, keys, items):
        """Add fields that are entries of a map, after the other fields.

        The arguments are the start of each row in the entries, int64; a mask of the rows with a map, or None; names and
        texts.
        """
        self._entries.places = <const int64_t*> self._numbers(places, 8 * (self._count + 1))
        self._entries.valid = NULL if valid is None else <const uint8_t*> self._numbers(valid, self._count)
        self._entries.keys, self._entries.items = self._texts(keys), self._texts(items)
        if self._entries.places[self._count] > min(self._entries.keys.length, self._entries.items.length):
            raise ValueError("there are fewer entries than the rows have")
        self._has_entries = True

    def measure(self, ends):
        """Write the end of each row's record, int64, into an array; call it once, before ``write``.

        Return False if a text is outside of its array's data; then nothing can be written.
        """
        cdef Py_buffer view
        cdef bint inside
        PyObject_GetBuffer(ends, &view, PyBUF_WRITABLE)
        try:
            if view.len < 8 * self._count:
                raise ValueError(f"ends: {view.len} bytes for {self._count} rows")
            self._sizes = <size_t*> realloc(self._sizes, self._count * sizeof(size_t) or 1)
            if self._sizes == NULL:
                raise MemoryError
            with nogil:
                inside = self._measure(<int64_t*> view.buf)
        finally:
            PyBuffer_Release(&view)
        if not inside:
            free(self._sizes)
            self._sizes = NULL
        return inside

    cdef bint _measure(self, int64_t* ends) noexcept nogil:
        cdef Py_ssize_t place
        cdef bint inside = True
        cdef int64_t row, end = 0
        for row in range(self._count):
            self._sizes[row] = 1 + width(self._seconds[0 if self._one_time else row])
        for place in range(self._field_count):
            inside &= add_sizes(&self._fields[place], self._sizes, self._count)
        if self._has_entries:
            for row in range(self._count):
                self._sizes[row] += self._entries_size(row, &inside)
        if self._nanos != NULL:
            for row in range(self._count):
                self._sizes[row] += 5 if self._nanos[row] else 0
        for row in range(self._count):
            end += delimited(self._sizes[row])
            ends[row] = end
        return inside

    cdef size_t _entries_size(self, int64_t row, bint* inside) noexcept nogil:
        cdef const Entries* entries = &self._entries
        cdef size_t size = 0
        cdef Text key, item
        cdef int64_t entry
        if entries.places[row] < 0 or entries.places[row] > entries.places[row + 1]:
            inside[0] = False
            return 0
        if entries.valid != NULL and not entries.valid[row]:
            return 0
        for entry in range(entries.places[row], entries.places[row + 1]):
            if find_inside(&entries.items, entry, &item, inside) and find_inside(&entries.keys, entry, &key, inside):
                size += delimited(entry_size(key.size + (reserved(key.data, key.size) != 0), item.size))
        return size

    def write(self, memory, order, Py_ssize_t start, Py_ssize_t stop):
        """Write records, which fill ``memory`` exactly.

        :param order: the row of each record, int64; None if they are in order.
        """
        cdef Py_buffer view, rows
        cdef const int64_t* which = NULL
        cdef size_t size
        cdef bint fits
        if order is not None:
            PyObject_GetBuffer(order, &rows, PyBUF_SIMPLE)
            which = <const int64_t*> rows.buf
        try:
            if self._sizes == NULL or not 0 <= start <= stop <= (self._count if order is None else rows.len // 8):
                raise ValueError(f"there are no records from {start} to {stop}")
            PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
            try:
                size = view.len
                with nogil:
                    fits = self._write(<uint8_t*> view.buf, size, which, start, stop)
            finally:
                PyBuffer_Release(&view)
        finally:
            if order is not None:
                PyBuffer_Release(&rows)
        if not fits:
            raise ValueError(f"{size} bytes are not the size of the records from {start} to {stop}")

    cdef bint _write(
        self, uint8_t* at, size_t size, const int64_t* order, Py_ssize_t start, Py_ssize_t stop
    ) noexcept nogil:
        cdef size_t log
        cdef int64_t place, row
        for place in range(start, stop):
            row = place if order == NULL else order[place]
            if not 0 <= row < self._count:
                return False
            log = self._sizes[row]
            if delimited(log) > size:
                return False
            size -= delimited(log)
            at = self._put_log(put_head(at, 0x0A, log), row)
        return size == 0

    cdef inline uint8_t* _put_log(self, uint8_t* at, int64_t row) noexcept nogil:
        cdef Py_ssize_t place
        cdef const Field* field
        cdef Text text
        cdef uint32_t nanos
        at[0] = 0x08
        at = put_varint(at + 1, self._seconds[0 if self._one_time else row])
        for place in range(self._field_count):
            field = &self._fields[place]
            if find_chosen(field, row, &text):
                at = put_head(at, 0x12, content_size(field.name.size, text.size))
                at = put_text(at, field.name)
                at = put_varint(at, text.size)
                at = put_text(at, text)
        if self._has_entries:
            at = self._put_entries(at, row)
        if self._nanos != NULL and self._nanos[row]:
            nanos = <uint32_t> self._nanos[row]
            at[0], at[1], at[2], at[3], at[4] = 0x25, nanos & 255, nanos >> 8 & 255, nanos >> 16 & 255, nanos >> 24
            at += 5
        return at

    cdef uint8_t* _put_entries(self, uint8_t* at, int64_t row) noexcept nogil:
        cdef const Entries* entries = &self._entries
        cdef Text key, item
        cdef int64_t entry
        cdef int kind
        if entries.valid != NULL and not entries.valid[row]:
            return at
        for entry in range(entries.places[row], entries.places[row + 1]):
            if find(&entries.items, entry, &item) and find(&entries.keys, entry, &key):
                kind = reserved(key.data, key.size)
                at = put_head(at, 0x12, entry_size(key.size + (kind != 0), item.size))
                at = put_head(at, 0x0A, key.size + (kind != 0))
                at[0] = 95
                at = put_text(at + (kind == 2), key)
                at[0] = 95
                at += kind == 1
                at = put_text(put_head(at, 0x12, item.size), item)
        return at
