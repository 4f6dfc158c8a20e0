# cython: language_level=3
"""The native implementation of ``raw_exchange.py``, which documents the functions."""

import _socket
import os
import socket

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, ECONNRESET, EINTR, EPIPE, errno
from libc.string cimport memset

from producer.runtime._gil cimport ask, have, threads_that_ask

from .raw_exchange import exchange as exchange_in_steps

cdef extern from *:
    """
    #include <poll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <time.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    static double producer_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec + now.tv_nsec * 1e-9;
    }
    """
    ctypedef int nfds_t
    cdef struct pollfd:
        int fd
        short events
    cdef short POLLIN, POLLOUT
    cdef int MSG_DONTWAIT, MSG_NOSIGNAL
    int poll(pollfd*, nfds_t, int) nogil
    cdef struct iovec:
        void* iov_base
        size_t iov_len
    cdef struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    Py_ssize_t sendmsg(int, const msghdr*, int) nogil
    Py_ssize_t recv(int, void*, size_t, int) nogil
    double now "producer_now" () nogil


cdef enum:
    # Smaller requests are many: a pause would cost senders more than the wait for the interpreter. Bytes.
    LEAST_TO_HURRY = 16 * 1024
    # Used like a number of errno.
    TIMED_OUT = -1
    # The longest timeout of `poll`, milliseconds.
    LONGEST_WAIT = 1000000000

cdef int* asking = threads_that_ask()


def exchange(line not None, bytes head not None, bytes body not None, Py_ssize_t most):
    sock = line.sock
    # TLS handles each byte itself; sockets of gevent and eventlet wait in a loop of their own.
    if type(sock) is not socket.socket or not isinstance(sock, _socket.socket):
        return exchange_in_steps(line, head, body, most)
    cdef int descriptor = sock.fileno(), error = EINTR
    cdef double silence = line.silence, end = now() + <double> line.left()
    cdef iovec[2] parts
    parts[0].iov_base, parts[0].iov_len = PyBytes_AS_STRING(head), len(head)
    parts[1].iov_base, parts[1].iov_len = PyBytes_AS_STRING(body), len(body)
    cdef bint hurries = len(body) >= LEAST_TO_HURRY
    cdef Py_ssize_t got = 0
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, most)
    cdef char* into = PyBytes_AS_STRING(answer)
    while error == EINTR:
        with nogil:
            error = write(descriptor, parts, silence, end)
            if error == 0 or error == EPIPE or error == ECONNRESET:
                error = read(descriptor, into, most, silence, end, &got)
            if hurries:
                ask(asking)
        if hurries:
            have(asking)
        if error == EINTR:
            PyErr_CheckSignals()
    whole = parts[0].iov_len == 0 and parts[1].iov_len == 0
    if error == TIMED_OUT:
        return whole, TimeoutError("timed out"), b""
    if error != 0:
        return whole, OSError(error, os.strerror(error)), b""
    return whole, None, answer[:got]


cdef int write(int descriptor, iovec* parts, double silence, double end) noexcept nogil:
    """Send the parts, and drop sent bytes from them; return 0, or the number of an error."""
    cdef msghdr message
    cdef Py_ssize_t some
    cdef size_t taken, of_head = 0
    cdef int error
    memset(&message, 0, sizeof(message))
    message.msg_iov, message.msg_iovlen = parts, 2
    while parts[0].iov_len or parts[1].iov_len:
        some = sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
        if some < 0:
            if errno != EAGAIN:
                return errno
            error = wait(descriptor, POLLOUT, silence, end)
            if error != 0:
                return error
            continue
        taken = some
        of_head = min(taken, parts[0].iov_len)
        parts[0].iov_base, parts[0].iov_len = <char*> parts[0].iov_base + of_head, parts[0].iov_len - of_head
        taken -= of_head
        parts[1].iov_base, parts[1].iov_len = <char*> parts[1].iov_base + taken, parts[1].iov_len - taken
    return 0


cdef int read(int descriptor, char* into, Py_ssize_t most, double silence, double end, Py_ssize_t* got) noexcept nogil:
    """Return 0, or the number of an error."""
    cdef int error
    while True:
        error = wait(descriptor, POLLIN, silence, end)
        if error != 0:
            return error
        got[0] = recv(descriptor, into, most, MSG_DONTWAIT)
        if got[0] >= 0:
            return 0
        if errno != EAGAIN:
            return errno


cdef int wait(int descriptor, short events, double silence, double end) noexcept nogil:
    """Wait until the socket is ready; return 0, or the number of an error."""
    cdef pollfd one
    cdef double milliseconds = min(silence, end - now()) * 1000
    cdef int ready
    if milliseconds <= 0:
        return TIMED_OUT
    one.fd, one.events = descriptor, events
    ready = poll(&one, 1, <int> min(milliseconds + 1, <double> LONGEST_WAIT))
    if ready < 0:
        return errno
    return 0 if ready > 0 else TIMED_OUT


def is_quiet(int descriptor):
    """Return True if nothing can be read. Keeps the interpreter lock: the call does not wait."""
    cdef pollfd one
    one.fd, one.events = descriptor, POLLIN
    return poll(&one, 1, 0) == 0
