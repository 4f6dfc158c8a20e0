"""A standalone Spark cluster on this machine: a master and two workers of one core each, from the installed pyspark.

The workers listen on 127.0.0.1 and 127.0.0.2 if the machine has the second, so that Spark takes them for two hosts: it
never runs a speculative copy of a task on the host of the first. No path of theirs has the checkout.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.support.spark_classes import QUICK, java_environment, spark_home

from .processes import Process, kill_session, processes_of

#: The limit for a start of a part of the cluster, and for a job, seconds.
PATIENCE = 150.0

T = TypeVar("T")

# The master's port for jobs from other machines stays closed.
_DAEMON_OPTIONS = "-Dspark.master.rest.enabled=false"

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    # No task starts before both executors are there, so that each gets half of the work.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.master.name = org.apache.spark.deploy.master.Master
logger.master.level = info
logger.worker.name = org.apache.spark.deploy.worker.Worker
logger.worker.level = info
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = info
"""

_EXECUTOR = "CoarseGrainedExecutorBackend"


class Cluster:
    """A running cluster; a context manager that leaves no process behind, even if the start fails."""

    def __init__(self, folder: Path, python: Path, java_options: str = "") -> None:
        """Start nothing yet.

        :param folder: the folder for logs and the workers' files.
        :param python: the Python of drivers and workers.
        :param java_options: the options of all JVMs.
        """
        self.python = python
        self.hosts = ("127.0.0.1", "127.0.0.2" if _is_local("127.0.0.2") else "127.0.0.1")
        self.url = ""
        self._folder = folder
        self._master: _Daemon | None = None
        self._workers: list[_Daemon] = []
        self._jobs: list[subprocess.Popen[str]] = []
        log4j = folder / "log4j2.properties"
        log4j.write_text(_LOG4J)
        self._java_options = f"{QUICK} {java_options} -Dlog4j.configurationFile={log4j.as_uri()}"
        self._environment = _environment(python)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the cluster and of its jobs."""
        self.end_jobs()
        for daemon in [*self._workers, *([self._master] if self._master else [])]:
            daemon.kill()

    def end_jobs(self) -> None:
        """End the drivers that still run, and their executors."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            kill_session(job.pid)
            job.wait()
            for stream in (job.stdout, job.stderr):
                if stream is not None:
                    stream.close()
        for pid in self.executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def workers(self) -> list[int]:
        """The pid of each worker, the process that starts executors."""
        return [worker.process.pid for worker in self._workers]

    def kill_worker(self, number: int, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a worker. Its executors end when their connection is lost."""
        os.kill(self._workers[number].process.pid, sig)

    def restart_worker(self, number: int) -> None:
        """Kill a worker and its executors, and wait until a new worker is registered."""
        self._workers[number].kill()
        self._workers[number] = self._start_worker(number)
        self._wait_for_worker(self._workers[number])

    def heal(self) -> None:
        """Restart the workers that have ended."""
        for number, worker in enumerate(self._workers):
            if worker.process.poll() is not None:
                self.restart_worker(number)

    def executors(self) -> list[int]:
        """The pids of the executors, those on the first worker first."""
        return [process.pid for process in self._processes() if _EXECUTOR in process.command]

    def python_workers(self) -> list[int]:
        """The pids of the Python processes that run tasks or wait for them, without the daemons that fork them."""
        everything = self._processes()
        daemons = {process.pid for process in everything if "pyspark.daemon" in process.command}
        # A worker keeps the command line of its daemon, from which it is forked. A daemon's parent is an executor.
        return [process.pid for process in everything if process.pid in daemons and process.parent in daemons]

    def submit(
        self,
        script: Path,
        *arguments: object,
        conf: Mapping[str, str] | None = None,
        py_files: Sequence[Path] = (),
        archives: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a job with ``spark-submit`` in client mode; :meth:`end_jobs` ends it at the latest.

        :param script: the job's program.
        :param arguments: the program's arguments.
        :param conf: settings over those of the cluster.
        :param py_files: the files for ``--py-files``.
        :param archives: the archives for ``--archives``, such as ``env.tar.gz#environment``.
        :param environment: variables over those of the cluster.
        :returns: the running driver; :func:`ended` waits for its end.
        """
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.url]
        # Set here, so that a job may bring another Python for its workers only.
        named = {
            "spark.pyspark.driver.python": str(self.python),
            "spark.driver.extraJavaOptions": self._java_options,
            "spark.executor.extraJavaOptions": self._java_options,
        }
        settings = {**_SETTINGS, **named, **(conf or {})}
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--py-files", ",".join(map(str, py_files))] if py_files else []
        command += ["--archives", ",".join(archives)] if archives else []
        job = subprocess.Popen(
            [*command, str(script), *map(str, arguments)],
            cwd=self._folder,
            env={**self._environment, "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._jobs.append(job)
        return job

    def logs(self) -> str:
        """Return the logs of the master, the workers and the executors, for a message."""
        paths = [*sorted(self._folder.glob("*.log")), *sorted(self._folder.glob("worker-*/*/*/stderr"))]
        return "\n".join(f"== {path.relative_to(self._folder)}\n{_end_of(path)}" for path in paths)

    def _processes(self) -> list[Process]:
        return [process for worker in self._workers for process in processes_of(worker.process.pid)]

    def _start(self) -> None:
        self._master = self._daemon("master", "127.0.0.1", "master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = self._master.wait_for(r"Starting Spark master at (spark://\S+)")
        self._master.wait_for("(New state: ALIVE)")
        for number in range(len(self.hosts)):
            self._workers.append(self._start_worker(number))
        for worker in self._workers:
            self._wait_for_worker(worker)

    def _start_worker(self, number: int) -> _Daemon:
        host, folder = self.hosts[number], self._folder / f"worker-{number}"
        resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        return self._daemon(f"worker-{number}", host, "worker.Worker", "--host", host, *resources, self.url)

    def _wait_for_worker(self, worker: _Daemon) -> None:
        worker.wait_for("(Successfully registered with master)")

    def _daemon(self, name: str, host: str, main: str, *arguments: str) -> _Daemon:
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--webui-port", "0"]
        # Without SPARK_LOCAL_IP its web pages would listen on all addresses.
        options = f"{self._java_options} {_DAEMON_OPTIONS}"
        environment = {**self._environment, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_JAVA_OPTS": options}
        count = len(list(self._folder.glob(f"{name}*.log")))
        return _Daemon([*command, *arguments], environment, self._folder / f"{name}-{count}.log")


class _Daemon:
    """A process of the cluster in a session of its own, with its log."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=log.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, pattern: str) -> str:
        """Wait for a pattern in the log, and return its first group."""

        def found() -> str | None:
            match = re.search(pattern, self._log.read_text(errors="replace"))
            return match[1] if match else None

        return until(found, self.process, lambda: _end_of(self._log))

    def kill(self) -> None:
        """End the process and all its children."""
        kill_session(self.process.pid)
        self.process.wait()


def until(condition: Callable[[], T | None], process: subprocess.Popen[Any], log: Callable[[], str] = str) -> T:
    """Wait until ``condition()`` is true, and return its result, as long as the process lives."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert process.poll() is None, f"the process ended with {process.returncode}:\n{log()}"
        assert time.monotonic() < deadline, f"nothing in {PATIENCE} s:\n{log()}"
        time.sleep(0.02)
    return value


def ended(job: subprocess.Popen[str], timeout: float = PATIENCE) -> str:
    """Wait for the end of a job, and return its output."""
    output, errors = job.communicate(timeout=timeout)
    assert job.returncode == 0, f"the job ended with {job.returncode}:\n{output}\n{errors}"
    return output


def _environment(python: Path) -> dict[str, str]:
    """Return this process's environment without the variables that would show Spark the checkout or local settings."""
    unwanted = ("PYTHON", "PYSPARK_", "SPARK_", "COVERAGE_", "COV_", "VIRTUAL_ENV")
    kept = {name: value for name, value in java_environment().items() if not name.startswith(unwanted)}
    return kept | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }


def _is_local(host: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
        return True


def _end_of(path: Path) -> str:
    return path.read_text(errors="replace")[-4000:]
