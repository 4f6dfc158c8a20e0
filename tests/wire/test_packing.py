"""Compressing and digesting in one step has the result of two steps."""

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from hashlib import md5
from pathlib import Path

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.wire.compression import COMPRESSIONS, compress_joined
from producer.wire.packing import pack_joined, pure_pack_lz4

PACK_LZ4 = {"pure": pure_pack_lz4}
with suppress(ImportError):
    from producer.wire import _packing

    PACK_LZ4["native"] = _packing.pack_lz4


@pytest.mark.parametrize("twin", PACK_LZ4)
def test_a_packed_body_is_the_one_that_lz4_makes_with_the_digest_that_hashlib_makes(twin: str) -> None:
    """The body equals that of lz4, and the digest that of hashlib, for any size and kind of memory."""
    rng = random.Random(5)
    words = [rng.randbytes(size) for size in range(1, 30)]
    for size in (0, 1, 13, 2_047, 16_383, 16_384, 65_535, 65_547, 65_548, 1_000_000):
        text = b"".join(rng.choices(words, k=size))[:size]
        for data in (text, rng.randbytes(size)):
            expected = lz4.block.compress(data, store_size=False)
            for given_as in (data, memoryview(bytearray(data)), memoryview(data).cast("b")):
                assert PACK_LZ4[twin](given_as) == (expected, md5(expected).digest())


@pytest.mark.parametrize("twin", PACK_LZ4)
@pytest.mark.parametrize("wrong", ["text", None, memoryview(bytes(100))[::2]])
def test_native_and_pure_refuse_an_object_without_a_buffer(twin: str, wrong: object) -> None:
    """Both the native and the pure function refuse an object without a buffer."""
    with pytest.raises((TypeError, BufferError)):
        PACK_LZ4[twin](wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("twin", PACK_LZ4)
def test_a_large_body_is_packed_while_other_threads_run(twin: str) -> None:
    """Packing a large body releases the GIL."""
    turns, ended, before = 0, threading.Event(), sys.getswitchinterval()

    def run() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            time.sleep(0)  # Releases the GIL.

    other, data = threading.Thread(target=run), random.Random(1).randbytes(2**22)
    sys.setswitchinterval(1000)
    try:
        other.start()
        give_up, seen = time.monotonic() + 60, turns
        while turns == seen and time.monotonic() < give_up:
            PACK_LZ4[twin](data)
        assert turns > seen
    finally:
        sys.setswitchinterval(before)
        ended.set()
        other.join()


@pytest.mark.parametrize("method", COMPRESSIONS)
@given(parts=st.lists(st.binary(max_size=300), max_size=10))
def test_a_body_that_is_packed_is_the_compressed_one_and_its_digest(method: str, parts: list[bytes]) -> None:
    """A packed body is the compressed one and its digest, by every method."""
    body, digest = pack_joined(parts, method)
    assert (body, digest) == (compress_joined(parts, method), md5(body).digest())


@pytest.mark.parametrize("module", ["_hashlib", "lz4.block._block"])
def test_where_a_function_is_not_to_be_found_the_pure_twin_packs(module: str) -> None:
    """If a function cannot be found, as in a Python with its own hash functions, the pure implementation packs."""
    program = (
        f"import importlib; importlib.import_module({module!r}).__file__ = None\n"
        "from producer.wire.packing import pack_lz4, pure_pack_lz4\n"
        "assert pack_lz4 is pure_pack_lz4"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


_COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
int taken = 0;
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
    taken++;
    return ((int (*)(pthread_rwlock_t*)) dlsym(RTLD_NEXT, "pthread_rwlock_rdlock"))(lock);
}
"""
_PACKS = """
import ctypes
from producer.wire._packing import pack_lz4
taken = ctypes.c_int.in_dll(ctypes.CDLL(None), "taken")
pack_lz4(bytes(100_000))
before = taken.value
pack_lz4(bytes(100_000))
assert taken.value == before
"""


@pytest.mark.skipif("native" not in PACK_LZ4 or sys.platform != "linux" or not shutil.which("gcc"), reason="see below")
def test_packing_takes_no_lock_of_openssl(tmp_path: Path) -> None:
    """Packing takes no lock of OpenSSL, which a fork would leave locked in the child."""
    source, counter = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(_COUNTER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(counter), str(source), "-ldl"], check=True)
    subprocess.run([sys.executable, "-c", _PACKS], env={**os.environ, "LD_PRELOAD": str(counter)}, check=True)
