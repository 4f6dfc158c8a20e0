"""The process that runs an agent: signals, reloads of its configuration, and its monitoring.

SIGTERM and SIGINT shut it down gracefully. A second one, at least half a second later, ends it at once. SIGHUP reloads
the configuration. So does a change of the file, once two polls in a row find the same state: a file that is still
being written is not read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from ..agent import Agent, AgentConfig, AgentConfigError
from ..agent.config.options import Problem, words_of
from ..agent.monitoring import MonitoringServer, address_of
from ..agent.run.agent import UndeliveredError
from ..agent.run.blueprint import Blueprint
from ..model.errors import ProducerError
from ..runtime.clock import Signal
from ..runtime.directory_lock import DirectoryLock, owner_of
from ..runtime.loggers import get_logger
from ..runtime.signals import handling, on_stop_signal
from ..text.plural import counted
from .output import tell

_log = get_logger("loghub.agent")
#: The logger of an agent's start, reloads and end. Its INFO lines show at every level up to WARNING.
STORY = "loghub.agent.program"
_story = get_logger(STORY)

#: Seconds between two polls of the configuration file.
POLL_SECONDS = 0.4
#: Seconds between two checks for readiness, or for the end of delivery after all sources are done.
SHORT_POLL_SECONDS = 0.05
#: The limit of open descriptors. Programs that ``exec`` starts may close every possible one: a million takes long.
_MOST_FILES = 65_536
_STOPS = ("SIGTERM", "SIGINT")
_RELOAD, _CHANGED = "reload", "changed"


class StateInUseError(ProducerError):
    """Raised when another process uses the state directory, or when it cannot be used."""


class Program:
    """An agent with its signals, reloads and monitoring.

    :param load: the function that loads the configuration.
    :param path: the configuration file.
    :param until_done: True to end when all sources are done and all events are delivered.
    :param watch: True to reload the file when it changes.
    """

    def __init__(self, load: Callable[[], AgentConfig], path: Path, *, until_done: bool, watch: bool) -> None:
        self._load, self._path, self._until_done = load, path, until_done
        self._watched = _Watched(path) if watch else None
        self._inbox: deque[str] = deque()  # signal handlers append to it
        self._arrived = Signal()
        self._monitoring: MonitoringServer | None = None
        self._listens: str | None = None  # the monitoring address, as configured
        self._retry: Callable[[], bool] | None = None  # True if a rejected configuration may take effect

    def run(self) -> bool:
        """Run until a signal stops it, or it is done. Return False if a component did not stop in time.

        :raises AgentConfigError: the configuration is invalid; nothing was started.
        :raises ProducerError: a channel cannot be opened, or the monitoring cannot listen; nothing was started.
        """
        _open_many_files()
        with self._signals():
            return self._run(self._load())

    def _run(self, config: AgentConfig) -> bool:
        agent = Agent(config, changed=lambda: self._enqueue(_CHANGED))
        if self._until_done:
            _check_finite(agent.blueprint)
        with _state_held(config.state) as lock:
            self._monitor(agent)
            try:
                agent.start()
                why = self._work(agent, lock)
                _notify("STOPPING=1")
                _story.info("agent %s: ends: %s", config.name, why)
                ended = agent.stop()
            except (KeyboardInterrupt, StateInUseError):
                agent.stop(0)
                raise
            finally:
                self._monitor(None)
        left = "".join(
            f"; {counted(count, 'event remains', 'events remain')} in {name}" for name, count in agent.remaining.items()
        )
        how = left or "; no event remains in its channels" if ended else f", but not all of it in time{left}"
        former = "".join(f"; {place}, which no channel uses, had {n}" for place, n in agent.undelivered.items())
        _story.info("agent %s: ended%s%s", config.name, how, former)
        return ended

    def _work(self, agent: Agent, lock: DirectoryLock) -> str:
        """Work until the end, and return its reason.

        :raises StateInUseError: another process may use the state directory.
        """
        announced = False
        while True:
            _check_is_held(lock)
            if not announced and agent.listens():
                self._announce(agent)
                announced = True
            done = self._until_done and agent.finished()
            if done and agent.delivered():
                return "all is done"
            message = self._next(SHORT_POLL_SECONDS if done or not announced else POLL_SECONDS)
            if message in _STOPS:
                return message
            if message == _RELOAD or (message is None and self._is_due()):
                self._reload(agent)
            elif message is None and self._watched is not None and self._watched.vanished():
                _log.warning("agent %s continues: its file %s is gone", agent.config.name, self._path)
                agent.reloads.failed(f"its file {self._path} is gone")

    def _is_due(self) -> bool:
        """Return True if the file has changed, or a rejected configuration may take effect."""
        changed = self._watched is not None and self._watched.changed()
        return changed or (self._retry is not None and self._retry())

    def _next(self, timeout: float) -> str | None:
        if not self._inbox:
            self._arrived.wait(timeout)
        return self._inbox.popleft() if self._inbox else None

    def _enqueue(self, message: str) -> None:
        self._inbox.append(message)
        self._arrived.set()

    def _reload(self, agent: Agent) -> None:
        name, self._retry = agent.config.name, None
        if self._watched is not None:
            self._watched.use()
        try:
            changes = agent.reload(self._load())
        except ProducerError as error:
            _log.error("agent %s keeps its configuration: %s", name, " ".join(str(error).split()))  # always one line
            agent.reloads.failed(words_of(error))
            self._retry = error.is_over if isinstance(error, UndeliveredError) else None
            return
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the agent
            _log.exception("agent %s keeps its configuration: the new one cannot take effect", name)
            agent.reloads.failed(f"{type(error).__name__}: {words_of(error)}")
            return
        _story.info("agent %s: read its configuration again; %s", name, changes)
        self._log_notes(agent)
        try:
            if agent.config.monitoring != self._listens:
                self._monitor(agent)
        except ProducerError as error:
            where = "" if self._monitoring is None else f"; it continues at {self._monitoring.url}"
            _log.error("agent %s: %s%s", name, error, where)
            agent.reloads.failed(words_of(error))
            return
        if agent.reloads.worked():
            _story.info("agent %s: its configuration is valid again, and applied", name)

    def _monitor(self, agent: Agent | None) -> None:
        """Listen on the configured monitoring address; None to stop listening.

        :raises MonitoringError: it cannot listen there; it keeps listening on the former address, if any.
        """
        former, self._monitoring = self._monitoring, None
        listened, self._listens = self._listens, None
        if former is not None:
            former.close()  # the new address may have the same port
        if agent is None or agent.config.monitoring is None:
            return
        try:
            self._monitoring = MonitoringServer(agent, *address_of(agent.config.monitoring))
            self._listens = agent.config.monitoring
        except ProducerError:
            if former is not None:
                with contextlib.suppress(ProducerError):
                    self._monitoring = MonitoringServer(agent, former.host, former.port)
                    self._listens = listened
            raise

    @staticmethod
    def _log_notes(agent: Agent) -> None:
        for note in agent.blueprint.notes:
            _log.warning("agent %s: %s", agent.config.name, note)

    def _announce(self, agent: Agent) -> None:
        blueprint = agent.blueprint
        self._log_notes(agent)
        counts = {"source": blueprint.sources, "channel": blueprint.channels, "sink": agent.config.sinks}
        parts = ", ".join(f"{len(named)} {word}{'s' * (len(named) > 1)}" for word, named in counts.items())
        where = "" if self._monitoring is None else f"; monitoring on {self._monitoring.url}"
        state = Path(agent.config.state).absolute()
        _story.info("agent %s: %s at work; state in %s%s", agent.config.name, parts, state, where)
        _notify("READY=1")

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Enqueue SIGTERM, SIGINT and SIGHUP in the inbox; a second stop signal has its former effect."""
        with (
            handling({signal.SIGHUP: lambda *_: self._enqueue(_RELOAD)}),
            on_stop_signal(lambda number: self._enqueue(signal.Signals(number).name)),
        ):
            yield


class _Watched:
    """A file that is polled for changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used = self._seen = self._state()
        self._reported = False

    def changed(self) -> bool:
        """Return True if the file differs from the one last used, and the last poll found it the same."""
        seen, self._seen = self._seen, self._state()
        if self._seen is None or self._seen != seen or (self._seen == self._used and not self._reported):
            return False
        self._used, self._reported = self._seen, False
        return True

    def use(self) -> None:
        """Record the file's state as the one that is used."""
        self._used = self._seen = self._state()
        self._reported = self._reported and self._used is None

    def vanished(self) -> bool:
        """Return True once if the file is gone."""
        newly_gone = self._seen is None and not self._reported
        self._reported = self._reported or newly_gone
        return newly_gone

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None  # it may be in the middle of a replacement: the next poll sees the new file
        return found.st_mtime_ns, found.st_size, found.st_ino


def _check_finite(blueprint: Blueprint) -> None:
    """Check that every source can come to an end.

    :raises AgentConfigError: a source always waits for more.
    """
    problems = []
    for name, part in blueprint.sources.items():
        if getattr(part.source.kind, "endless", False):
            kind = blueprint.config.sources[name].type
            message = f"--until-done would never end: {kind} always waits for more"
            problems.append(Problem(f"sources.{name}", "", message, blueprint.config.sources[name].lines.get("")))
    if problems:
        raise AgentConfigError(problems, blueprint.config.origin)


def _check_is_held(lock: DirectoryLock) -> None:
    """Check that this process holds the lock.

    :raises StateInUseError: the lock was removed or replaced.
    """
    lost = lock.lost()
    if lost is not None:
        raise StateInUseError(
            f"{lost} was removed or replaced, so another agent may use the state directory: stop that agent, and start"
            " this one again"
        )


@contextlib.contextmanager
def _state_held(directory: Path) -> Iterator[DirectoryLock]:
    """Hold the lock of the state directory for the block.

    :raises StateInUseError: another process holds the lock, or the directory cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(directory, "lock")
    except BlockingIOError as error:
        holder = owner_of(directory / "lock")
        raise StateInUseError(
            f"{holder or 'another agent'} uses the state directory {directory.absolute()}: stop it first, or give this"
            " agent a state directory of its own (agent.state, or --state DIR)"
        ) from error
    except OSError as error:
        advice = "free some space" if error.errno == errno.ENOSPC else "name another one (agent.state, or --state DIR)"
        raise StateInUseError(f"cannot use the state directory {directory}: {error.strerror}: {advice}") from error
    try:
        with contextlib.suppress(OSError):  # the owner's name is only for people: a full disk must not stop delivery
            lock.write_owner()
        yield lock
    finally:
        lock.release()


def _open_many_files() -> None:
    """Raise the limit of open descriptors: each peer and each followed file takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):  # a system with a lower limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _notify(message: str) -> None:
    """Notify systemd, if it started this process with a notification socket."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.sendto(message.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError as error:
        tell(f"producer agent: cannot notify systemd: {error}")
