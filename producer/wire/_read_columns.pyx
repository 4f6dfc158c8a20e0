# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of ``PureGroups`` in ``read_columns.py``: converts a response to buffers of Arrow columns.

A response is checked once, when it arrives. Data that encoders do not write (another order within a field, an unknown
field, an invalid length) raises ``UnusualError``, and the protobuf library reads it. All later steps rely on the
checked lengths. The file has more than 400 lines to keep the check next to the code that relies on it.

Source: LogHub protocol, Protobuf; the layouts of Arrow's columnar format.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memmove, memset

from ._bytes cimport PyBytes_FromStringAndSize, Text, owned, put_text, text_of

cdef enum:
    # In a log with more fields, the protobuf library finds repeated names.
    MOST_FIELDS = 256


class UnusualError(Exception):
    """Raised when only the protobuf library can read a response."""


cdef struct Log:
    const uint8_t* at
    const uint8_t* end
    int64_t time  # Microseconds since the epoch.
    uint32_t fields, key_bytes, value_bytes  # The number of fields, and their total sizes in bytes.


cdef struct Group:
    # The bounds of all fields of a group that are not logs.
    const uint8_t* at
    const uint8_t* end
    int64_t first


cdef struct Column:
    # A binary array that is written value by value: its offsets and its data.
    int32_t* ends
    uint8_t* data


cdef inline const uint8_t* varint(const uint8_t* at, const uint8_t* end, uint64_t* number) noexcept nogil:
    """Read a number of up to 35 bits. Return the position after it, or NULL."""
    cdef int shift = 0
    number[0] = 0
    while at < end and shift < 35:
        number[0] |= <uint64_t> (at[0] & 127) << shift
        if at[0] < 128:
            return at + 1
        at += 1
        shift += 7
    return NULL


cdef inline const uint8_t* sized(const uint8_t* at, const uint8_t* end, Text* text) noexcept nogil:
    """Read a length and as many bytes. Return the position after them, or NULL."""
    cdef uint64_t size
    text.data, text.size = at, 0
    at = varint(at, end, &size)
    if at == NULL or size > <uint64_t> (end - at):
        return NULL
    text.data, text.size = at, size
    return at + size


cdef inline const uint8_t* pair(const uint8_t* at, const uint8_t* end, Text* key, Text* value) noexcept nogil:
    """Read a field or tag of exactly a key and a value. Return the position after it, or NULL."""
    key.data, key.size, value.data, value.size = at, 0, at, 0
    if at == end or at[0] != 0x0A:
        return NULL
    at = sized(at + 1, end, key)
    if at == NULL or at == end or at[0] != 0x12:
        return NULL
    at = sized(at + 1, end, value)
    return at if at == end else NULL


cdef bint check_log(Log* log) noexcept nogil:
    """Return True if a log has the usual form, and set its time and the sizes of its fields."""
    cdef const uint8_t* at = log.at
    cdef uint64_t number, seconds = 0
    cdef uint32_t nanos = 0
    cdef Text part, key, value
    while at < log.end:
        if at[0] == 0x12:
            at = sized(at + 1, log.end, &part)
            if at == NULL or pair(part.data, part.data + part.size, &key, &value) == NULL:
                return False
            log.fields += 1
            log.key_bytes += <uint32_t> key.size
            log.value_bytes += <uint32_t> value.size
        elif at[0] == 0x08:
            at = varint(at + 1, log.end, &number)
            if at == NULL or number >> 32:
                return False
            seconds = number
        elif at[0] == 0x25 and log.end - at >= 5:
            nanos = <uint32_t> at[1] | <uint32_t> at[2] << 8 | <uint32_t> at[3] << 16 | <uint32_t> at[4] << 24
            at += 5
        else:
            return False
    log.time = <int64_t> seconds * 1000000 + nanos // 1000
    return True


cdef inline const uint8_t* next_field(const uint8_t* at, const uint8_t* end, Text* key, Text* value) noexcept nogil:
    """Read the next field of a checked log. Return the position after it; NULL if there is none."""
    cdef uint64_t number
    cdef Text part
    while at < end:
        if at[0] == 0x12:
            at = sized(at + 1, end, &part)
            pair(part.data, part.data + part.size, key, value)
            return at
        at = varint(at + 1, end, &number) if at[0] == 0x08 else at + 5
    return NULL


cdef inline bint same(const Text* one, const Text* other) noexcept nogil:
    return one.size == other.size and memcmp(one.data, other.data, one.size) == 0


cdef class Groups:
    """The LogGroups of a response.

    :raises UnusualError: the response does not have the usual form.
    """

    cdef bytes body
    cdef Log* logs
    cdef Group* groups
    cdef int64_t log_count, log_room, group_count, group_room

    def __cinit__(self, bytes body not None):
        self.body = body
        if len(body) >= 1 << 31:  # Columns have offsets of 32 bits.
            raise UnusualError
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(body)
        if not self.check_all(at, at + len(body)):
            raise UnusualError

    def __dealloc__(self):
        PyMem_Free(self.logs)
        PyMem_Free(self.groups)

    def __len__(self):
        return self.group_count

    def sizes(self):
        """Return the number of logs in each LogGroup."""
        cdef int64_t index
        firsts = [self.groups[index].first for index in range(self.group_count)] + [self.log_count]
        return [after - first for first, after in zip(firsts, firsts[1:])]

    def head(self, int64_t index):
        """Return topic, source and tags of a LogGroup, as bytes."""
        if not 0 <= index < self.group_count:
            raise IndexError(index)
        cdef const uint8_t* at = self.groups[index].at
        cdef const uint8_t* end = self.groups[index].end
        cdef Text part, key, value
        cdef uint8_t tag
        topic, source, tags = b"", b"", []
        while at < end:
            tag = at[0]
            at = sized(at + 1, end, &part)
            if tag == 0x1A:
                topic = part.data[: part.size]
            elif tag == 0x22:
                source = part.data[: part.size]
            elif tag == 0x32:
                pair(part.data, part.data + part.size, &key, &value)
                tags.append((key.data[: key.size], value.data[: value.size]))
        return topic, source, tags

    def times(self, int64_t first, int64_t stop):
        """Return the times of some logs as int64 in bytes, microseconds since the epoch."""
        self.check(first, stop)
        made = owned(PyBytes_FromStringAndSize(NULL, 8 * (stop - first)))
        cdef int64_t* times = <int64_t*> PyBytes_AS_STRING(made)
        cdef int64_t row
        for row in range(first, stop):
            times[row - first] = self.logs[row].time
        return made

    def named(self, int64_t first, int64_t stop, list names not None):
        """Return for each name the buffers of a binary array of its values, and the number of nulls."""
        self.check(first, stop)
        cdef int64_t rows = stop - first, count = len(names), column
        cdef Text* wanted = <Text*> taken(count * sizeof(Text))
        cdef Text* found = NULL
        try:
            found = <Text*> taken(rows * count * sizeof(Text))
            for column in range(count):
                wanted[column] = text_of(names[column])
            with nogil:
                memset(found, 0, rows * count * sizeof(Text))
                self.find(first, stop, wanted, count, found)
            return [array_of(found + column * rows, rows) for column in range(count)]
        finally:
            PyMem_Free(wanted)
            PyMem_Free(found)

    cdef void find(self, int64_t first, int64_t stop, const Text* wanted, int64_t count, Text* found) noexcept nogil:
        cdef int64_t row, tried, place, rows = stop - first, likely
        cdef const uint8_t* at
        cdef Text key, value
        for row in range(first, stop):
            at, likely = self.logs[row].at, 0
            while True:
                at = next_field(at, self.logs[row].end, &key, &value)
                if at == NULL:
                    break
                place = likely  # Fields mostly have the same order.
                for tried in range(count):
                    if same(&key, wanted + place):
                        found[place * rows + row - first] = value
                        likely = place + 1 if place + 1 < count else 0
                        break
                    place = place + 1 if place + 1 < count else 0

    def contents(self, int64_t first, int64_t stop):
        """Return all fields of some logs; of a repeated field, the last value is used.

        The result is the start of each log's fields, int32 in bytes, and the buffers of their keys and values, as in
        ``named``. It is None if the protobuf library has to find repeated names.
        """
        self.check(first, stop)
        cdef int64_t row, fields = 0, key_bytes = 0, value_bytes = 0
        for row in range(first, stop):
            if self.logs[row].fields > MOST_FIELDS:
                return None
            fields += self.logs[row].fields
            key_bytes += self.logs[row].key_bytes
            value_bytes += self.logs[row].value_bytes
        made = owned(PyBytes_FromStringAndSize(NULL, 4 * (stop - first + 1)))
        key_array, value_array = array_for(fields, key_bytes), array_for(fields, value_bytes)
        cdef Column keys = column_of(key_array), values = column_of(value_array)
        cdef int32_t* starts = <int32_t*> PyBytes_AS_STRING(made)
        with nogil:
            fields = self.gather(first, stop, &keys, &values, starts)
            memset(keys.data + keys.ends[fields], 0, key_bytes - keys.ends[fields])
            memset(values.data + values.ends[fields], 0, value_bytes - values.ends[fields])
        return made, key_array, value_array

    cdef int64_t gather(self, int64_t first, int64_t stop, Column* keys, Column* values, int32_t* starts) noexcept nogil:
        """Write the fields that no later one of the same log replaces. Return their number."""
        cdef int64_t row, end = 0, start, before = 0
        cdef const uint8_t* at
        cdef Text key, value
        cdef bint alike
        keys.ends[0] = values.ends[0] = 0
        for row in range(first, stop):
            start, at, alike = end, self.logs[row].at, True
            starts[row - first] = <int32_t> start
            while True:
                at = next_field(at, self.logs[row].end, &key, &value)
                if at == NULL:
                    break
                # A log with the same names in the same order as the one before has no repeated names.
                alike = alike and before < start and is_at(keys, before, &key)
                if alike:
                    before += 1
                elif forget(keys, values, start, end, &key):
                    end -= 1
                put(keys, end, key)
                put(values, end, value)
                end += 1
            before = start
        starts[stop - first] = <int32_t> end
        return end

    cdef int check(self, int64_t first, int64_t stop) except -1:
        if not 0 <= first <= stop <= self.log_count:
            raise IndexError(f"{first}:{stop} of {self.log_count} logs")
        return 0

    cdef bint check_all(self, const uint8_t* at, const uint8_t* end) except -1:
        """Return True if the response has the usual form, and note the positions of its LogGroups and logs."""
        cdef Text part
        while at < end:
            if at[0] != 0x0A:
                return False
            at = sized(at + 1, end, &part)
            if at == NULL:
                return False
            if self.group_count == self.group_room:
                self.group_room = 2 * self.group_room + 64
                self.groups = <Group*> grown(self.groups, self.group_room * sizeof(Group))
            self.groups[self.group_count] = Group(part.data + part.size, part.data + part.size, self.log_count)
            self.group_count += 1
            if not self.check_group(part.data, part.data + part.size, self.groups + self.group_count - 1):
                return False
        return True

    cdef bint check_group(self, const uint8_t* at, const uint8_t* end, Group* group) except -1:
        cdef const uint8_t* start
        cdef Text part, key, value
        cdef uint8_t tag
        group.end = end
        while at < end:
            start, tag = at, at[0]
            at = sized(at + 1, end, &part)
            if at == NULL:
                return False
            if tag == 0x0A:
                if self.log_count == self.log_room:
                    self.log_room = 2 * self.log_room + 1024
                    self.logs = <Log*> grown(self.logs, self.log_room * sizeof(Log))
                self.logs[self.log_count] = Log(part.data, part.data + part.size, 0, 0, 0, 0)
                if not check_log(self.logs + self.log_count):
                    return False
                self.log_count += 1
                continue
            if tag == 0x32 and pair(part.data, part.data + part.size, &key, &value) == NULL:
                return False
            if tag not in (0x12, 0x1A, 0x22, 0x2A, 0x32):
                return False
            group.at, group.end = min(group.at, start), at
        return True


cdef inline bint is_at(const Column* column, int64_t place, const Text* text) noexcept nogil:
    cdef Text own = Text(column.data + column.ends[place], column.ends[place + 1] - column.ends[place])
    return same(&own, text)


cdef inline void put(Column* column, int64_t place, Text text) noexcept nogil:
    put_text(column.data + column.ends[place], text)
    column.ends[place + 1] = column.ends[place] + <int32_t> text.size


cdef bint forget(Column* keys, Column* values, int64_t start, int64_t end, const Text* key) noexcept nogil:
    """Remove an earlier field with the same name. Return True if there was one."""
    cdef int64_t place
    for place in range(start, end):
        if is_at(keys, place, key):
            take_out(keys, place, end)
            take_out(values, place, end)
            return True
    return False


cdef void take_out(Column* column, int64_t place, int64_t end) noexcept nogil:
    """Remove a value, and move those after it."""
    cdef int32_t at = column.ends[place], behind = column.ends[place + 1]
    memmove(column.data + at, column.data + behind, column.ends[end] - behind)
    for place in range(place + 1, end):
        column.ends[place] = column.ends[place + 1] - (behind - at)


cdef tuple array_for(int64_t count, int64_t size):
    """Return empty buffers of a binary array for a number of values and bytes, as in ``array_of``."""
    offsets = owned(PyBytes_FromStringAndSize(NULL, 4 * (count + 1)))
    return None, offsets, owned(PyBytes_FromStringAndSize(NULL, size)), 0


cdef Column column_of(tuple array):
    cdef bytes offsets = array[1], data = array[2]
    return Column(<int32_t*> PyBytes_AS_STRING(offsets), <uint8_t*> PyBytes_AS_STRING(data))


cdef void* taken(size_t size) except NULL:
    cdef void* memory = PyMem_Malloc(size or 1)
    if memory == NULL:
        raise MemoryError
    return memory


cdef void* grown(void* memory, size_t size) except NULL:
    memory = PyMem_Realloc(memory, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef tuple array_of(const Text* texts, int64_t count):
    """Return texts as the buffers of a binary array: validity (None without nulls), offsets, data; and the number of
    nulls.

    A text without a pointer is null.
    """
    cdef int64_t row, nulls = 0
    cdef size_t size = 0
    for row in range(count):
        nulls += texts[row].data == NULL
        size += texts[row].size
    bits = None
    cdef uint8_t* valid = NULL
    if nulls:
        bits = owned(PyBytes_FromStringAndSize(NULL, (count + 7) // 8))
        valid = <uint8_t*> PyBytes_AS_STRING(bits)
        memset(valid, 0, (count + 7) // 8)
    offsets = owned(PyBytes_FromStringAndSize(NULL, 4 * (count + 1)))
    data = owned(PyBytes_FromStringAndSize(NULL, size))
    cdef int32_t* ends = <int32_t*> PyBytes_AS_STRING(offsets)
    cdef uint8_t* begin = <uint8_t*> PyBytes_AS_STRING(data)
    with nogil:
        put_texts(texts, count, valid, ends, begin)
    return bits, offsets, data, nulls


cdef void put_texts(const Text* texts, int64_t count, uint8_t* valid, int32_t* ends, uint8_t* begin) noexcept nogil:
    cdef int64_t row
    cdef uint8_t* at = begin
    ends[0] = 0
    for row in range(count):
        if texts[row].data != NULL:
            at = put_text(at, texts[row])
            if valid != NULL:
                valid[row >> 3] |= 1 << (row & 7)
        ends[row + 1] = <int32_t> (at - begin)
