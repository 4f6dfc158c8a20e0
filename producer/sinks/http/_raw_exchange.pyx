# cython: language_level=3
"""The compiled twin of ``at_once.py``, which says what it does."""

import os
import socket

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ECONNRESET, EINTR, EPIPE, errno
from libc.string cimport memset

from producer.runtime._gil cimport ask, have, threads_that_ask

from .raw_exchange import exchange as exchange_in_steps

cdef extern from *:
    """
    #include <fcntl.h>
    #include <poll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    """
    ctypedef int nfds_t
    cdef struct pollfd:
        int fd
        short events
    cdef short POLLIN
    cdef int F_GETFL, O_NONBLOCK
    int fcntl(int, int) nogil
    cdef int MSG_NOSIGNAL
    int poll(pollfd*, nfds_t, int) nogil
    cdef struct iovec:
        void* iov_base
        size_t iov_len
    cdef struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    Py_ssize_t sendmsg(int, const msghdr*, int) nogil
    Py_ssize_t recv(int, void*, size_t, int) nogil


cdef enum:
    # Requests with less are many, and a pause costs those who call `send` more than the wait for the interpreter.
    LEAST_TO_HURRY = 16 * 1024

cdef int* asking = threads_that_ask()


def exchange(sock not None, bytes head not None, bytes body not None, Py_ssize_t most):
    """See the pure twin."""
    if type(sock) is not socket.socket:  # TLS
        return exchange_in_steps(sock, head, body, most)
    cdef int descriptor = sock.fileno(), error = EINTR
    # With a timeout Python waits itself. Sockets of gevent and eventlet never block, whatever their timeout says.
    if fcntl(descriptor, F_GETFL) & O_NONBLOCK:
        return exchange_in_steps(sock, head, body, most)
    cdef iovec[2] parts
    parts[0].iov_base, parts[0].iov_len = PyBytes_AS_STRING(head), len(head)
    parts[1].iov_base, parts[1].iov_len = PyBytes_AS_STRING(body), len(body)
    cdef bint hurries = len(body) >= LEAST_TO_HURRY
    cdef Py_ssize_t got = 0
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, most)
    cdef char* into = PyBytes_AS_STRING(answer)
    while error == EINTR:
        with nogil:
            error = write(descriptor, parts)
            if error != EINTR and (error == 0 or error == EPIPE or error == ECONNRESET):
                got = recv(descriptor, into, most, 0)
                error = errno if got < 0 else 0
            if hurries:
                ask(asking)
        if hurries:
            have(asking)
        if error == EINTR:
            PyErr_CheckSignals()
    whole = parts[0].iov_len == 0 and parts[1].iov_len == 0
    if error != 0:
        return whole, OSError(error, os.strerror(error)), b""
    return whole, None, answer[:got]


cdef int write(int descriptor, iovec* parts) noexcept nogil:
    """0, or what went wrong; what has left is taken from the parts."""
    cdef msghdr message
    cdef Py_ssize_t some
    cdef size_t taken, of_head = 0
    memset(&message, 0, sizeof(message))
    message.msg_iov, message.msg_iovlen = parts, 2
    while parts[0].iov_len or parts[1].iov_len:
        some = sendmsg(descriptor, &message, MSG_NOSIGNAL)
        if some < 0:
            return errno
        taken = some
        of_head = min(taken, parts[0].iov_len)
        parts[0].iov_base, parts[0].iov_len = <char*> parts[0].iov_base + of_head, parts[0].iov_len - of_head
        taken -= of_head
        parts[1].iov_base, parts[1].iov_len = <char*> parts[1].iov_base + taken, parts[1].iov_len - taken
    return 0


def is_quiet(int descriptor):
    """See the pure twin. It keeps the interpreter: the kernel is only asked, and does not wait."""
    cdef pollfd one
    one.fd, one.events = descriptor, POLLIN
    return poll(&one, 1, 0) == 0
