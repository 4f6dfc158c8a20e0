# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of what ``format.py`` does for each event of a transaction.

What is ordinary is done here: events of small bytes, whose headers are those of the event before, or a few. All else is
left to the pure twin.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ....interfaces import Event

from . import format as pure
from .format import MARKER, decode_event, decode_headers, encode_event, encode_headers


cdef enum:
    # Of a frame: the marker and the checksum, and what that covers before the payload.
    CHECKED = 8
    COVERED = 28
    PUT = 1
    # What is longer is left to the pure twin, which lets other threads run, or does not join it.
    AT_ONCE = 4096


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
    """See the pure twin."""
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
        if size >= AT_ONCE:
            payloads.append(encode_event(event))
            continue
        if headers is not of_block:
            block, of_block = encode_headers(headers), headers
        head = PyBytes_GET_SIZE(block)
        payload = PyBytes_FromStringAndSize(NULL, head + size)
        memcpy(PyBytes_AS_STRING(payload), PyBytes_AS_STRING(block), head)
        memcpy(PyBytes_AS_STRING(payload) + head, PyBytes_AS_STRING(body), size)
        payloads.append(payload)
    return payloads


def encode_puts(object seed, uint64_t first, uint64_t transaction, uint32_t records, payloads):
    """See the pure twin."""
    cdef list pieces = [], sizes = []
    cdef object crc32 = pure.crc32
    cdef bytes covered, head
    cdef char* to
    cdef char* checked
    cdef Py_ssize_t size
    cdef uint32_t at = 0
    cdef const char* marker = PyBytes_AS_STRING(MARKER)
    for payload in payloads:
        if type(payload) is not bytes or PyBytes_GET_SIZE(payload) > AT_ONCE:
            more, lengths = pure.encode_puts(seed, first + at, transaction, records - at, (payload,))
            pieces += more
            sizes += lengths
        else:
            size = PyBytes_GET_SIZE(payload)
            covered = PyBytes_FromStringAndSize(NULL, COVERED)
            to = PyBytes_AS_STRING(covered)
            put32(to, <uint32_t> size)
            put32(to + 4, PUT)  # a byte, and three that are zero
            put32(to + 8, records - at)
            put64(to + 12, first + at)
            put64(to + 20, transaction)
            head = PyBytes_FromStringAndSize(NULL, CHECKED)
            checked = PyBytes_AS_STRING(head)
            memcpy(checked, marker, 4)
            put32(checked + 4, <uint32_t> crc32(payload, crc32(covered, seed)))
            pieces += (head, covered, payload)
            sizes.append(CHECKED + COVERED + size)
        at += 1
    return pieces, sizes


def decode_events(list payloads, sequences):
    """See the pure twin."""
    cdef list events = []
    cdef object mapping = None, event
    cdef bytes block = None, payload
    cdef const char* data
    cdef Py_ssize_t size, end
    for one, sequence in zip(payloads, sequences):
        if type(one) is not bytes or PyBytes_GET_SIZE(one) < 4:
            events.append(decode_event(one, sequence))
            continue
        payload = one
        data, size = PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
        end = 4 + <Py_ssize_t> get32(data)
        if end > size:
            events.append(decode_event(payload, sequence))
            continue
        if block is None or PyBytes_GET_SIZE(block) != end - 4 or memcmp(PyBytes_AS_STRING(block), data + 4, end - 4):
            block = PyBytes_FromStringAndSize(data + 4, end - 4)
            mapping = decode_headers(block)
        event = Event.__new__(Event)
        # Around the setattr of a frozen class; its __init__ does the same.
        PyObject_GenericSetAttr(event, "headers", mapping)
        PyObject_GenericSetAttr(event, "body", PyBytes_FromStringAndSize(data + end, size - end))
        PyObject_GenericSetAttr(event, "sequence", sequence)
        events.append(event)
    return events
