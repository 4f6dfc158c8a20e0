"""The JVM that Spark runs in: started in a group of processes of its own, so that it can be ended as a whole.

PySpark starts it as well, but forgets what it has started when it is interrupted before the JVM has said where it
listens. That takes seconds: a shell asks one Java how to start another, and becomes it. Here the process is known from
its first moment. PySpark is told where it listens as ``spark-submit`` tells it: by ``PYSPARK_GATEWAY_PORT`` and
``PYSPARK_GATEWAY_SECRET``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from .errors import SparkStartError

#: What a JVM gets to delete its files and end its Python workers before it is killed, seconds.
END_SECONDS = 5.0

_POLL_SECONDS = 0.05
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class Jvm:
    """A JVM of this process. It leads a group of its own, and ends when the pipe that is its input does: also when this
    process is killed.

    :param settings: of Spark; those of its driver count from here on.
    :param java_options: those of Spark's settings and of the environment count more.
    """

    def __init__(self, settings: Mapping[str, str], java_options: str = "") -> None:
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="loghub-producer-jvm-"))
        self._place = self._folder / "listens"
        self._process = _popen(settings, self._place, java_options)

    def tell_environment(self) -> None:
        """Wait until it listens, and tell the environment of this process where.

        :raises SparkStartError: it has ended instead.
        """
        while not self._place.exists():
            code = self._process.poll()
            if code is not None:
                raise SparkStartError(
                    f"Java ended with code {code} before Spark had started; its output above has the cause"
                )
            time.sleep(_POLL_SECONDS)
        # Two big-endian integers, the port and the length of the secret, and the secret.
        said = self._place.read_bytes()
        port, length = struct.unpack_from(">ii", said)
        os.environ[_PORT], os.environ[_SECRET] = str(port), said[8 : 8 + length].decode()

    def end(self) -> None:
        """End it and what it has started; returns when it is gone. May be called again, and does nothing in a fork."""
        if os.getpid() != self._owner:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._process.poll() is None:
            try:
                self._signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_SECONDS)
            finally:
                self._signal(signal.SIGKILL)
                self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: nobody is left but a zombie
            os.killpg(self._process.pid, number)


def known_to_environment() -> bool:
    """Whether whoever started this process has given it a JVM, as ``spark-submit`` does."""
    return _PORT in os.environ


def forget_in_environment() -> None:
    """What this process starts later finds a JVM of its own."""
    for name in (_PORT, _SECRET):
        os.environ.pop(name, None)


def _popen(settings: Mapping[str, str], place: Path, java_options: str) -> subprocess.Popen[bytes]:
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    java_options = f"{java_options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"  # of two, the later one holds
    submit = Path(_find_spark_home()) / "bin" / "spark-submit"
    own = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return subprocess.Popen(
        [submit, *options, *own],
        stdin=subprocess.PIPE,
        env=os.environ
        | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(place), "SPARK_SUBMIT_OPTS": java_options},
        process_group=0,  # a terminal's Ctrl-C is not for it
    )
