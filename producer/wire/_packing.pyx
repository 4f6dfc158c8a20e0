# cython: language_level=3
"""The native implementation of ``packing.pure_pack_lz4``: compresses and digests without the GIL.

It calls the same functions as the package ``lz4`` and ``hashlib``, which it looks up in their loaded modules. If one is
missing, as in a Python with its own hash functions, the import fails, and the pure implementation is used.
"""

import os

import _hashlib
from lz4.block import _block

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free, malloc

from producer.runtime._gil cimport ask, have, threads_that_ask

from .packing import pure_pack_lz4

cdef extern from "<dlfcn.h>":
    int RTLD_NOW
    void* dlopen(const char*, int)
    void* dlsym(void*, const char*)

ctypedef int (*bound_of)(int) noexcept nogil
ctypedef void* (*new_stream)() noexcept nogil
ctypedef int (*end_stream)(void*) noexcept nogil
ctypedef int (*compress_block)(void*, const char*, char*, int, int, int) noexcept nogil
ctypedef const void* (*hash_kind)() noexcept nogil
ctypedef const void* (*fetch_kind)(void*, const char*, const char*) noexcept nogil
ctypedef int (*digest_of)(const void*, size_t, unsigned char*, unsigned int*, const void*, void*) noexcept nogil


cdef enum:
    # Below this size in bytes, the work takes less time than getting the GIL back.
    LEAST_WITHOUT = 16 * 1024
    MOST = 0x7E000000  # Maximum size of an lz4 block.
    MD5_SIZE = 16


cdef void* symbol(module, bytes name) except NULL:
    """Return a function of a loaded module, or of a library that it is linked with."""
    path = os.fsencode(getattr(module, "__file__", "") or "")  # A module within the interpreter has no file.
    cdef void* loaded = dlopen(path, RTLD_NOW) if path else NULL
    cdef void* found = NULL if loaded == NULL else dlsym(loaded, name)
    if found == NULL:
        raise ImportError(f"{module} has no {name.decode()}")
    return found


cdef const void* find_md5() except NULL:
    """Return MD5, looked up once.

    OpenSSL 3 looks up ``EVP_md5`` for each digest, under a lock. A fork at that moment would leave the lock taken in
    the child permanently.
    """
    cdef const void* found
    try:
        found = (<fetch_kind> symbol(_hashlib, b"EVP_MD_fetch"))(NULL, b"MD5", b"-fips")  # Like hashlib with usedforsecurity=False.
    except ImportError:  # Before OpenSSL 3, no lookup is needed.
        found = (<hash_kind> symbol(_hashlib, b"EVP_md5"))()
    if found == NULL:
        raise ImportError("OpenSSL has no MD5 here")
    return found


cdef bound_of lz4_bound = <bound_of> symbol(_block, b"LZ4_compressBound")
cdef new_stream lz4_begin = <new_stream> symbol(_block, b"LZ4_createStream")
cdef end_stream lz4_end = <end_stream> symbol(_block, b"LZ4_freeStream")
cdef compress_block lz4_compress = <compress_block> symbol(_block, b"LZ4_compress_fast_continue")
cdef const void* md5_kind = find_md5()
cdef int* asking = threads_that_ask()
cdef digest_of digest = <digest_of> symbol(_hashlib, b"EVP_Digest")


def pack_lz4(data):
    cdef Py_buffer raw
    PyObject_GetBuffer(data, &raw, PyBUF_SIMPLE)
    try:
        packed = None if raw.len == 0 or raw.len > MOST else pack(<const char*> raw.buf, <int> raw.len)
    finally:
        PyBuffer_Release(&raw)
    return pure_pack_lz4(data) if packed is None else packed


cdef tuple pack(const char* raw, int size):
    """Return the body and its digest; None if memory is missing, or a step failed."""
    cdef unsigned char[MD5_SIZE] md5
    cdef int room = lz4_bound(size), packed
    cdef char* body = <char*> malloc(room)
    if body == NULL:
        return None
    try:
        if size < LEAST_WITHOUT:
            packed = pack_into(body, room, raw, size, md5)
        else:
            with nogil:
                packed = pack_into(body, room, raw, size, md5)
                ask(asking)
            have(asking)
        if packed <= 0:
            return None
        return PyBytes_FromStringAndSize(body, packed), PyBytes_FromStringAndSize(<char*> md5, MD5_SIZE)
    finally:
        free(body)


cdef int pack_into(char* body, int room, const char* raw, int size, unsigned char* md5) noexcept nogil:
    """Return the size of the body; 0 if a step failed."""
    cdef void* stream = lz4_begin()
    cdef unsigned int length = 0
    if stream == NULL:
        return 0
    cdef int packed = lz4_compress(stream, raw, body, size, room, 1)
    lz4_end(stream)
    if packed <= 0 or digest(body, packed, md5, &length, md5_kind, NULL) != 1 or length != MD5_SIZE:
        return 0
    return packed
