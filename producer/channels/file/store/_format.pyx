# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native implementation of the per-event functions of ``format.py``.

It handles the common case: small events of bytes, whose headers are few or those of the event before. Everything else
is left to the pure implementation.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ....model.interfaces import Event

from . import format as pure
from .format import MARKER, Parted, crc32, decode_event, decode_headers, encode_event, encode_headers


cdef enum:
    # Bytes of a frame before the payload, and those before the checksummed part.
    FRAME = 36
    CHECKED = 8
    PUT = 1
    # Longer bodies are not joined to their headers.
    JOINED = 4096
    # The same values as in format.py.
    AT_ONCE = 5120


cdef inline void put32(char* at, uint32_t number) noexcept:
    cdef int byte
    for byte in range(4):
        at[byte] = <char> (number >> 8 * byte)


cdef inline void put64(char* at, uint64_t number) noexcept:
    cdef int byte
    for byte in range(8):
        at[byte] = <char> (number >> 8 * byte)


cdef inline uint32_t get32(const char* at) noexcept:
    cdef const uint8_t* data = <const uint8_t*> at
    return data[0] | <uint32_t> data[1] << 8 | <uint32_t> data[2] << 16 | <uint32_t> data[3] << 24


def encode_events(events):
    cdef list payloads = []
    cdef object headers = None, block = None, of_block = None
    cdef bytes body, payload
    cdef Py_ssize_t head, size
    for event in events:
        if type(event) is not Event:
            payloads.append(encode_event(event))
            continue
        headers = event.headers
        if type(headers) is not dict or type(event.body) is not bytes:
            payloads.append(encode_event(event))
            continue
        body = event.body
        size = PyBytes_GET_SIZE(body)
        if headers is not of_block:
            block, of_block = encode_headers(headers), headers
        if size >= JOINED:
            payloads.append(Parted(block, body) if size < pure.LARGE else encode_event(event))
            continue
        head = PyBytes_GET_SIZE(block)
        payload = PyBytes_FromStringAndSize(NULL, head + size)
        memcpy(PyBytes_AS_STRING(payload), PyBytes_AS_STRING(block), head)
        memcpy(PyBytes_AS_STRING(payload) + head, PyBytes_AS_STRING(body), size)
        payloads.append(payload)
    return payloads


def encode_records(object seed, uint64_t first, uint64_t transaction, puts, others):
    cdef Py_ssize_t total = 0, size
    cdef uint32_t remaining = <uint32_t> (len(puts) + len(others))
    cdef list sizes = []
    cdef bytes data
    cdef char* to
    for payload in puts:
        size = FRAME + len(payload)
        sizes.append(size)
        total += size
    for _, payload in others:
        total += FRAME + len(payload)
    if total >= pure.LARGE:
        return pure.encode_records(seed, first, transaction, puts, others)
    data = PyBytes_FromStringAndSize(NULL, total)
    to = PyBytes_AS_STRING(data)
    for payload in puts:
        remaining -= 1
        to = put_record(to, seed, PUT, remaining, first, transaction, payload)
        first += 1
    for kind, payload in others:
        remaining -= 1
        to = put_record(to, seed, kind, remaining, first - 1, transaction, payload)
    return data, sizes


cdef char* put_record(
    char* to, object seed, uint32_t kind, uint32_t remaining, uint64_t sequence, uint64_t transaction, payload
) except NULL:
    """Write one frame; return the start of the next one."""
    cdef char* at = to + FRAME
    cdef Py_ssize_t covered
    if type(payload) is bytes:
        at = put_bytes(at, payload)
    else:
        at = put_bytes(put_bytes(at, payload.block), payload.body)
    put32(to + 8, <uint32_t> (at - to - FRAME))
    put32(to + 12, kind)  # one byte, and three zeros
    put32(to + 16, remaining)
    put64(to + 20, sequence)
    put64(to + 28, transaction)
    memcpy(to, PyBytes_AS_STRING(MARKER), 4)
    covered = CHECKED
    while covered < at - to:
        size = min(at - to - covered, AT_ONCE)
        seed = crc32(PyMemoryView_FromMemory(to + covered, size, PyBUF_READ), seed)
        covered += size
    put32(to + 4, <uint32_t> seed)
    return at


cdef char* put_bytes(char* to, bytes data) except NULL:
    memcpy(to, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return to + PyBytes_GET_SIZE(data)


def decode_events(list payloads, sequences):
    cdef list events = []
    cdef object mapping = None, event
    cdef bytes block = None, payload, body
    cdef const char* data
    cdef Py_ssize_t size, end
    for one, sequence in zip(payloads, sequences):
        if type(one) is Parted:
            payload, body = one.block, one.body
        elif type(one) is bytes:
            payload, body = one, None
        else:
            payload = body = None
        if payload is None or PyBytes_GET_SIZE(payload) < 4:
            events.append(decode_event(one, sequence))
            continue
        data, size = PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
        end = 4 + <Py_ssize_t> get32(data)
        if end > size:
            events.append(decode_event(payload, sequence))
            continue
        if block is None or PyBytes_GET_SIZE(block) != end - 4 or memcmp(PyBytes_AS_STRING(block), data + 4, end - 4):
            block = PyBytes_FromStringAndSize(data + 4, end - 4)
            mapping = decode_headers(block)
        event = Event.__new__(Event)
        # Bypasses the setattr of a frozen class, as its __init__ does.
        PyObject_GenericSetAttr(event, "headers", mapping)
        PyObject_GenericSetAttr(event, "body", PyBytes_FromStringAndSize(data + end, size - end) if body is None else body)
        PyObject_GenericSetAttr(event, "sequence", sequence)
        events.append(event)
    return events
