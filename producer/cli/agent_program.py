"""Program: an agent from its start to its end, with signals, changes of its file, and its monitoring.

SIGTERM and SIGINT end it in order; a second one, half a second later at least, ends it at once. SIGHUP reads the file
again, and so does a change of the file: once it looks the same twice, two seconds apart, so that a half written one is
not taken.
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
#: What whoever looks on wants to know of its life; in the log at any level but the highest ones.
STORY = "loghub.agent.program"
_story = get_logger(STORY)

#: Seconds between two looks at the file.
LOOK = 0.4
#: And whether all is delivered, once no source has anything left to do.
SOON = 0.05
#: Descriptors, at most: programs of ``exec`` that close all that there may be have not too many.
_MOST_FILES = 65_536
_STOPS = ("SIGTERM", "SIGINT")
_RELOAD, _CHANGED = "reload", "changed"


class StateInUseError(ProducerError):
    """Another process works with the directory."""


class Program:
    """See the module.

    :param load: reads the configuration.
    :param path: its file.
    :param until_done: end when all sources have nothing left to do, and all is delivered.
    :param watch: whether to look for changes of the file.
    """

    def __init__(self, load: Callable[[], AgentConfig], path: Path, *, until_done: bool, watch: bool) -> None:
        self._load, self._path, self._until_done = load, path, until_done
        self._watched = _Watched(path) if watch else None
        self._inbox: deque[str] = deque()  # signal handlers append to it
        self._arrived = Signal()
        self._monitoring: MonitoringServer | None = None
        self._listens: str | None = None  # where that is, as the configuration says it
        self._again: Callable[[], bool] | None = None  # whether what was refused is to be tried again now

    def run(self) -> bool:
        """Until it is told to end, or is done; False if something had not ended in time.

        :raises AgentConfigError: something is wrong with the configuration; nothing has begun.
        :raises ProducerError: a channel cannot be opened, or the monitoring cannot listen; likewise.
        """
        _open_many_files()
        with self._signals():
            return self._run(self._load())

    def _run(self, config: AgentConfig) -> bool:
        agent = Agent(config, changed=lambda: self._tell(_CHANGED))
        if self._until_done:
            _check_it_ends(agent.blueprint)
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
        """Run until the end; why it is the end.

        :raises StateInUseError: another process may have the state directory.
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
            message = self._next(SOON if done or not announced else LOOK)
            if message in _STOPS:
                return message
            if message == _RELOAD or (message is None and self._is_due()):
                self._reload(agent)
            elif message is None and self._watched is not None and self._watched.vanished():
                _log.warning("agent %s goes on: its file %s is gone", agent.config.name, self._path)
                agent.reloads.failed(f"its file {self._path} is gone")

    def _is_due(self) -> bool:
        """Whether the file is another one, or what it says may take effect now."""
        changed = self._watched is not None and self._watched.changed()
        return changed or (self._again is not None and self._again())

    def _next(self, timeout: float) -> str | None:
        if not self._inbox:
            self._arrived.wait(timeout)
        return self._inbox.popleft() if self._inbox else None

    def _tell(self, message: str) -> None:
        """Let :meth:`_next` return a message."""
        self._inbox.append(message)
        self._arrived.set()

    def _reload(self, agent: Agent) -> None:
        name, self._again = agent.config.name, None
        if self._watched is not None:
            self._watched.use()
        try:
            changes = agent.reload(self._load())
        except ProducerError as error:
            _log.error("agent %s goes on as it was: %s", name, " ".join(str(error).split()))  # one line, whatever it is
            agent.reloads.failed(words_of(error))
            self._again = error.is_over if isinstance(error, UndeliveredError) else None
            return
        except Exception as error:  # noqa: BLE001  # whatever is wrong with us, the agent goes on
            _log.exception("agent %s goes on as it was: its new configuration cannot take effect", name)
            agent.reloads.failed(f"{type(error).__name__}: {words_of(error)}")
            return
        _story.info("agent %s: read its configuration again; %s", name, changes)
        self._say_notes(agent)
        try:
            if agent.config.monitoring != self._listens:
                self._monitor(agent)
        except ProducerError as error:
            where = "" if self._monitoring is None else f"; it goes on at {self._monitoring.url}"
            _log.error("agent %s: %s%s", name, error, where)
            agent.reloads.failed(words_of(error))
            return
        if agent.reloads.worked():
            _story.info("agent %s: its configuration is valid again, and applied", name)

    def _monitor(self, agent: Agent | None) -> None:
        """Listen where the agent's configuration says, or nowhere.

        :raises MonitoringError: it cannot listen there, and goes on where it did, if it did.
        """
        former, self._monitoring = self._monitoring, None
        listened, self._listens = self._listens, None
        if former is not None:
            former.close()  # the new place may have the same port
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
    def _say_notes(agent: Agent) -> None:
        for note in agent.blueprint.notes:
            _log.warning("agent %s: %s", agent.config.name, note)

    def _announce(self, agent: Agent) -> None:
        blueprint = agent.blueprint
        self._say_notes(agent)
        counts = {"source": blueprint.sources, "channel": blueprint.channels, "sink": agent.config.sinks}
        parts = ", ".join(f"{len(named)} {word}{'s' * (len(named) > 1)}" for word, named in counts.items())
        where = "" if self._monitoring is None else f"; monitoring on {self._monitoring.url}"
        state = Path(agent.config.state).absolute()
        _story.info("agent %s: %s at work; state in %s%s", agent.config.name, parts, state, where)
        _notify("READY=1")

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Put SIGTERM, SIGINT and SIGHUP into the inbox; a second stop signal does what it did before."""
        with (
            handling({signal.SIGHUP: lambda *_: self._tell(_RELOAD)}),
            on_stop_signal(lambda number: self._tell(signal.Signals(number).name)),
        ):
            yield


class _Watched:
    """A file that may change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used = self._seen = self._look()
        self._told = False

    def changed(self) -> bool:
        """Whether it is another one than that last used, or was gone, and has not changed since the last look."""
        seen, self._seen = self._seen, self._look()
        if self._seen is None or self._seen != seen or (self._seen == self._used and not self._told):
            return False
        self._used, self._told = self._seen, False
        return True

    def use(self) -> None:
        """What is there now is about to be used."""
        self._used = self._seen = self._look()
        self._told = self._told and self._used is None

    def vanished(self) -> bool:
        """Whether there is no file, which is said once."""
        is_news = self._seen is None and not self._told
        self._told = self._told or is_news
        return is_news

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None  # it is being replaced; the next look will see it
        return found.st_mtime_ns, found.st_size, found.st_ino


def _check_it_ends(blueprint: Blueprint) -> None:
    """A source that waits for more has never nothing left to do.

    :raises AgentConfigError: there is one.
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
    """
    :raises StateInUseError: the lock was removed or replaced.
    """
    lost = lock.lost()
    if lost is not None:
        raise StateInUseError(
            f"{lost} was removed or replaced: another agent may work with the state directory; end that one, and start"
            " this one again"
        )


@contextlib.contextmanager
def _state_held(directory: Path) -> Iterator[DirectoryLock]:
    """The directory is this process's alone.

    :raises StateInUseError: it is another one's; or it cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(directory, "lock")
    except BlockingIOError as error:
        holder = owner_of(directory / "lock")
        raise StateInUseError(
            f"{holder or 'another agent'} works with the state directory {directory.absolute()}: end it first;"
            " or, for an agent that reads something else, give this one a state directory of its own (agent.state, or"
            " --state DIR)"
        ) from error
    except OSError as error:
        advice = "free some space" if error.errno == errno.ENOSPC else "name another one (agent.state, or --state DIR)"
        raise StateInUseError(f"cannot use the state directory {directory}: {error.strerror}: {advice}") from error
    try:
        with contextlib.suppress(OSError):  # on a full disk it only helps people; what is in channels is to go out
            lock.write_owner()
        yield lock
    finally:
        lock.release()


def _open_many_files() -> None:
    """Each peer and each file that is followed takes a descriptor: have as many as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):  # a system with a limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _notify(message: str) -> None:
    """Tell systemd, if it has started this and wants to know."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.sendto(message.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError as error:
        tell(f"producer agent: cannot notify systemd: {error}")
