"""Starts the JVM of Spark in its own process group, so that all its processes can be ended together.

PySpark loses track of a JVM if it is interrupted before the JVM has reported its port, which takes seconds. Here the
process is known as soon as it is started. PySpark gets the port as from ``spark-submit``: from ``PYSPARK_GATEWAY_PORT``
and ``PYSPARK_GATEWAY_SECRET``.
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

#: Time for a JVM to delete its files and end its Python workers before it is killed, seconds.
END_SECONDS = 5.0

_POLL_SECONDS = 0.05
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class Jvm:
    """A JVM of this process, which leads its own process group.

    It ends when the pipe of its standard input is closed, so also when this process is killed.

    :param settings: settings of Spark, including those of the driver that only apply at its start.
    :param java_options: Java options, which Spark's settings and the environment override.
    """

    def __init__(self, settings: Mapping[str, str], java_options: str = "") -> None:
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="loghub-producer-jvm-"))
        self._address_file = self._folder / "listens"
        self._process = _popen(settings, self._address_file, java_options)

    def export_address(self) -> None:
        """Wait until the JVM listens, and export its address to the environment of this process.

        :raises SparkStartError: the JVM has ended instead.
        """
        while not self._address_file.exists():
            code = self._process.poll()
            if code is not None:
                raise SparkStartError(
                    f"Java ended with code {code} before Spark had started; its output above has the cause"
                )
            time.sleep(_POLL_SECONDS)
        # The file contains two big-endian integers, the port and the length of the secret, and then the secret.
        content = self._address_file.read_bytes()
        port, length = struct.unpack_from(">ii", content)
        os.environ[_PORT], os.environ[_SECRET] = str(port), content[8 : 8 + length].decode()

    def end(self) -> None:
        """End the JVM and its child processes, and wait for their end; idempotent, and without effect in a fork."""
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
        with contextlib.suppress(ProcessLookupError, PermissionError):  # On macOS the group may contain only a zombie.
            os.killpg(self._process.pid, number)


def is_in_environment() -> bool:
    """Return True if the parent process has provided a JVM, as ``spark-submit`` does."""
    return _PORT in os.environ


def remove_from_environment() -> None:
    """Remove the address of the JVM, so that later child processes start their own."""
    for name in (_PORT, _SECRET):
        os.environ.pop(name, None)


def _popen(settings: Mapping[str, str], address_file: Path, java_options: str) -> subprocess.Popen[bytes]:
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    java_options = f"{java_options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"  # Java uses the last of two values.
    submit = Path(_find_spark_home()) / "bin" / "spark-submit"
    own = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return subprocess.Popen(
        [submit, *options, *own],
        stdin=subprocess.PIPE,
        env=os.environ
        | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address_file)}
        | {"SPARK_SUBMIT_OPTS": java_options},
        process_group=0,  # Ctrl-C of the terminal does not reach the JVM.
    )
