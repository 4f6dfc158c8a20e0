# cython: language_level=3, boundscheck=False, wraparound=False
"""The native implementation of ``open_records.py``, which documents the classes; and futures that cost little.

The interpreter lock is the only lock: between the first read of the counts and their last change, nothing runs that
could let another thread in, or raise. Steps that could, such as the conversion of values, come before. The file is long
because it holds everything that accesses the fields of ``OpenRecords``.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from producer.runtime._gil cimport let_pass, some, threads_that_ask
from producer.wire._bytes cimport delimited
from producer.wire._log_group cimport Log, Moment, log_size, moment_of, put_record, scan, simplified

import time

from ...model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES
from ...model.futures import SendFuture as PureFuture
from ...model.futures import missing
from ...model.records import LogItem
from ...wire.log_group import encode_log
from ...wire.text import moment_of as moment_of_clock
from .open_records import ONE_LOG_EACH, RECORD_OVERHEAD as PURE_RECORD_OVERHEAD, Sealed

cdef extern from "<time.h>":
    struct timespec:
        long long tv_sec
        long tv_nsec
    int TIME_UTC
    int timespec_get(timespec*, int)

cdef extern from "Python.h":
    void PyObject_GC_Track(PyObject*)
    void PyObject_GC_UnTrack(PyObject*)
    bint PyObject_GC_IsTracked(object)
    int PyObject_GenericSetAttr(object, object, object) except -1
    bint PyCFunction_CheckExact(object)
    ctypedef struct PyCFunctionObject:
        void* m_ml
        PyObject* m_self
    bint PyMethod_Check(object)
    PyObject* PyMethod_GET_FUNCTION(object)
    PyObject* PyMethod_GET_SELF(object)

# Room for the first logs, bytes: a batch of many streams rarely holds more.
cdef enum:
    FIRST_BYTES = 1000

# Memory is kept for the next batches, since the first use of new memory costs more than writing to it: so many pieces,
# of sizes in this range, bytes.
cdef enum:
    LEAST_KEPT = 32 * 1024
    MOST_KEPT = 1024 * 1024 + 64 * 1024
    PIECES_KEPT = 16

# Records of the general way, up to this size, are copied behind the others, so that a batch is one piece of memory,
# with room for the log that fills it and for the tail. Bytes.
cdef enum:
    SMALL = 4 * 1024
    SLACK = 32 * 1024

cdef int* asking = threads_that_ask()

cdef uint8_t* kept[PIECES_KEPT]
cdef size_t kept_sizes[PIECES_KEPT]
cdef int kept_count = 0

cdef object TIME_OF_DAY = time.time
cdef Py_ssize_t RECORD_OVERHEAD = PURE_RECORD_OVERHEAD
cdef Py_ssize_t MOST_BYTES = MAX_BATCH_SIZE_IN_BYTES, MOST_LOGS = MAX_BATCH_COUNT


cdef inline track(future):
    """Let the garbage collector scan a future."""
    if not PyObject_GC_IsTracked(future):
        PyObject_GC_Track(<PyObject*> future)


cdef inline bint same_call(one, other) noexcept:
    if PyCFunction_CheckExact(other):
        return (
            PyCFunction_CheckExact(one)
            and (<PyCFunctionObject*> one).m_ml == (<PyCFunctionObject*> other).m_ml
            and (<PyCFunctionObject*> one).m_self == (<PyCFunctionObject*> other).m_self
        )
    return (
        PyMethod_Check(other)
        and PyMethod_Check(one)
        and PyMethod_GET_FUNCTION(one) == PyMethod_GET_FUNCTION(other)
        and PyMethod_GET_SELF(one) == PyMethod_GET_SELF(other)
    )


@cython.final
@cython.freelist(512)
cdef class SendFuture:
    """A future with the methods of the pure implementation.

    The garbage collector does not scan it until it refers to more than its batch: the batch cannot refer back to it.
    """

    # Made by `new_future` only.

    cdef public object _holder
    cdef public Py_ssize_t _position
    cdef public object _callback
    cdef public object _watch
    cdef dict _attributes
    cdef object __weakref__

    def __init__(self, *_, **__):
        raise TypeError("futures are made by send alone")

    @property
    def __class__(self):
        return PureFuture

    @property
    def __dict__(self):
        return self._all_attributes()

    cdef dict _all_attributes(self):
        track(self)
        if self._attributes is None:
            self._attributes = {}
        return self._attributes

    def __setattr__(self, name, value):
        if isinstance(getattr(PureFuture, name, None), property):
            raise AttributeError(f"property {name!r} of 'SendFuture' object has no setter")
        track(self)
        if hasattr(SendFuture, name):
            PyObject_GenericSetAttr(self, name, value)
        else:
            self._all_attributes()[name] = value

    def __delattr__(self, name):
        if self._attributes is None or name not in self._attributes:
            raise AttributeError(name)
        del self._attributes[name]

    def __getattr__(self, name):
        # Attributes that are not below are rarely used.
        if self._attributes is not None and name in self._attributes:
            return self._attributes[name]
        try:
            found = getattr(PureFuture, name)
        except AttributeError:
            raise missing(name) from None
        return found.__get__(self, PureFuture) if hasattr(found, "__get__") else found

    def __repr__(self):
        return PureFuture.__repr__(self)

    def __await__(self):
        return PureFuture.__await__(self)

    def done(self):
        return PureFuture.done(self)

    def result(self, timeout=None):
        # The usual case, without a call into Python: this runs for each future that is kept.
        result = self._holder.result
        return result if result is not None and result.successful else PureFuture.result(self, timeout)

    def exception(self, timeout=None):
        return PureFuture.exception(self, timeout)

    def add_done_callback(self, fn):
        PureFuture.add_done_callback(self, fn)


cdef inline SendFuture new_future():
    cdef SendFuture future = SendFuture.__new__(SendFuture)
    PyObject_GC_UnTrack(<PyObject*> future)
    return future


@cython.final
cdef class Buffer:
    """Memory that grows until it is exported."""

    cdef uint8_t* data
    cdef size_t size, capacity

    def __dealloc__(self):
        global kept_count
        if LEAST_KEPT <= self.capacity <= MOST_KEPT and kept_count < PIECES_KEPT:
            kept[kept_count], kept_sizes[kept_count] = self.data, self.capacity
            kept_count += 1
        else:
            free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        Py_DECREF(None)  # Cython has put None there, and the next call overwrites it
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def with_tail(self, bytes tail not None):
        """Return all bytes with ``tail`` behind them, which other views do not include; None if there is no room.

        Called once the memory no longer grows.
        """
        cdef size_t size = self.size, more = len(tail)
        if more > self.capacity - size:
            return None
        memcpy(self.data + size, <const char*> tail, more)
        self.size += more
        whole = memoryview(self)
        self.size = size
        return whole

    cdef int reserve(self, size_t more, size_t most) except -1:
        """Make room for more bytes; runs no Python.

        :param most: the size that it will have in all, unless a single record is larger.
        """
        global kept_count
        cdef size_t wanted = max(self.size + more, min(max(2 * self.capacity, FIRST_BYTES), most))
        cdef uint8_t* data
        if self.size + more <= self.capacity:
            return 0
        if 2 * wanted >= LEAST_KEPT and kept_count and kept_sizes[kept_count - 1] >= wanted > self.capacity:
            kept_count -= 1
            data, wanted = kept[kept_count], kept_sizes[kept_count]
            if self.size:
                memcpy(data, self.data, self.size)
            free(self.data)
        else:
            data = <uint8_t*> realloc(self.data, wanted)
            if data == NULL:
                raise MemoryError
        self.data, self.capacity = data, wanted
        return 0


cdef class Bytes:
    """The native implementation of ``PureBytes`` in ``memory.py``."""

    cdef public Py_ssize_t limit
    cdef readonly Py_ssize_t used
    cdef public bint reserved_for_others

    def __init__(self, Py_ssize_t limit):
        self.limit = limit

    def take(self, Py_ssize_t amount):
        if not has(self, amount):
            return False
        self.used += amount
        return True

    def change(self, Py_ssize_t amount):
        self.used += amount


cdef inline bint has(Bytes memory, Py_ssize_t amount) noexcept:
    return not memory.reserved_for_others and memory.used + amount <= memory.limit


@cython.final
cdef class OpenRecords:
    """The native implementation of the pure ``OpenRecords``."""

    cdef readonly Py_ssize_t size, logs, sends, spent
    cdef object _holder, _clock, _fallback
    cdef Bytes _memory
    cdef bint _is_real_time, _apart
    cdef Py_ssize_t _threshold_bytes, _threshold_count
    cdef list _finished  # parts that grow no more; None for no parts, as below
    cdef Buffer _buffer  # the last part, which grows; or None
    cdef list _callbacks
    cdef dict _logs_of_send

    def __init__(
        self, holder, Bytes memory not None, clock, thresholds, Py_ssize_t tail_size, fallback=None, bint apart=False
    ):
        self._memory, self._clock, self._fallback = memory, clock, fallback
        self._is_real_time = clock.time is TIME_OF_DAY
        self._apart = apart
        self._threshold_bytes, self._threshold_count = thresholds
        self._holder = holder
        self.size = tail_size

    cpdef add(self, log, callback):
        cdef Log fields
        cdef SendFuture future
        cdef Moment time
        cdef Py_ssize_t length
        cdef bytes record = None
        if some(asking):
            with nogil:
                let_pass(asking)
        if self._holder is None or not (callback is None or callable(callback)):
            return None
        time = self._moment()
        if type(log) is LogItem:
            time = moment_of(log, time)
            log = log.contents
        if type(log) is not dict:
            return None
        future = new_future()
        self._make_lists(callback)
        while record is None and not scan(<PyObject*> log, &fields):
            simple = simplified(log, self._fallback)
            if simple is None:
                record = encode_log(LogItem(log, time.seconds, time.nanos), 0, 0, self._fallback)
            else:
                log = simple
        length = delimited(log_size(&fields, time)) if record is None else len(record)
        if (
            self._holder is None
            or self.size + length >= self._threshold_bytes
            or self.logs + 1 >= self._threshold_count
            or not has(self._memory, length + RECORD_OVERHEAD)
        ):
            return None
        self._reserve(length)
        if callback is not None:
            self._add_callback(callback)
        self._memory.used += length + RECORD_OVERHEAD
        self._put(&fields, time, record)
        self._count(length, 1, length + RECORD_OVERHEAD, future)
        return future

    def append(self, record, Py_ssize_t logs, callback, Py_ssize_t charge):
        cdef Py_ssize_t length = len(record)
        cdef SendFuture future = new_future()
        cdef bint is_small = type(record) is bytes and length <= SMALL and not self._apart
        if not is_small and self._finished is None:
            self._finished = []
        if logs != 1 and self._logs_of_send is None:
            self._logs_of_send = {}
        self._make_lists(callback)
        if not self.has_room(length, logs):
            return None
        if is_small:
            self._reserve(length)
        else:
            self._finish_buffer()
        finished = 0 if is_small else len(self._finished)
        try:
            if not is_small:
                self._finished.append(record)
            if logs != 1:
                self._logs_of_send[self.sends] = logs
            if callback is not None:
                self._add_callback(callback)
        except MemoryError:
            if not is_small:
                del self._finished[finished:]
            if self._logs_of_send is not None:
                self._logs_of_send.pop(self.sends, None)
            raise
        if is_small:
            self._put_bytes(<bytes> record)
        self._count(length, logs, charge, future)
        return future

    cpdef bint has_room(self, Py_ssize_t size, Py_ssize_t logs):
        if self._holder is None:
            return False
        return self.sends == 0 or (self.size + size <= MOST_BYTES and self.logs + logs <= MOST_LOGS)

    cdef inline Moment _moment(self) except *:
        cdef Moment moment
        cdef timespec real
        if self._is_real_time and timespec_get(&real, TIME_UTC) == TIME_UTC and 0 <= real.tv_sec <= 4294967295:
            moment.seconds, moment.nanos = <size_t> real.tv_sec, <size_t> real.tv_nsec
            return moment
        moment.seconds, moment.nanos = moment_of_clock(self._clock.time())
        return moment

    cdef inline void _put(self, const Log* fields, Moment time, bytes record) noexcept:
        cdef uint8_t* at = self._buffer.data + self._buffer.size
        if record is None:
            self._buffer.size += put_record(at, fields, time) - at
        else:
            self._put_bytes(record)

    cdef inline void _put_bytes(self, bytes record) noexcept:
        memcpy(self._buffer.data + self._buffer.size, <const char*> record, len(record))
        self._buffer.size += len(record)

    cdef inline int _reserve(self, Py_ssize_t length) except -1:
        if self._buffer is None:
            self._buffer = Buffer.__new__(Buffer)
        return self._buffer.reserve(length, self._threshold_bytes + SLACK)

    cdef inline int _make_lists(self, callback) except -1:
        """Create the lists before the counts are read: a new object may start a garbage collection, which may run any
        code.
        """
        if callback is not None and self._callbacks is None:
            self._callbacks = []
        return 0

    cdef inline _count(self, Py_ssize_t length, Py_ssize_t logs, Py_ssize_t charge, SendFuture future):
        future._holder, future._position = self._holder, self.sends
        self.size += length
        self.logs += logs
        self.spent += charge
        self.sends += 1

    cdef _add_callback(self, callback):
        cdef Py_ssize_t count = len(self._callbacks)
        if count == self.sends and count and same_call(self._callbacks[count - 1], callback):
            callback = self._callbacks[count - 1]
        while len(self._callbacks) < self.sends:
            self._callbacks.append(None)
        self._callbacks.append(callback)

    cdef _finish_buffer(self):
        if self._buffer is not None:
            if self._finished is None:
                self._finished = []
            self._finished.append(self._buffer)
            self._buffer = None

    def seal(self):
        self._holder = None
        self._finish_buffer()
        records = [memoryview(part) if type(part) is Buffer else part for part in self._finished or ()]
        callbacks, logs_of_send = self._callbacks or (), self._logs_of_send or ONE_LOG_EACH
        return Sealed(records, self.size, self.logs, self.sends, self.spent, callbacks, logs_of_send)

    def forget(self):
        self._holder = None
        self._finished = self._callbacks = self._logs_of_send = None
        self._buffer = None

    @property
    def closed(self):
        return self._holder is None

    @property
    def _records(self):
        parts = [*(self._finished or ()), *([] if self._buffer is None else [self._buffer])]
        return [bytes(part) for part in parts]


def send(self, log, *more, callback=None, urgent=False):
    """Do what the pure ``Stream.send`` does; for a log that the open batch takes, no Python code runs."""
    records = self._open
    if records is not None and not more and not urgent:
        future = (<OpenRecords> records).add(log, callback) if type(records) is OpenRecords else records.add(log, callback)
        if future is not None:
            return future
    return self._send_otherwise(log, more, callback, urgent)
