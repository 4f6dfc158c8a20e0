"""What ``producer channel drain`` does: delivers what is in the directory of a file channel.

One wrong character in an access key must not empty a channel. So before anything is taken LogHub is asked for every
logstore that the events are for, and what somebody can mend, found then or on the way, ends the drain and leaves the
events where they are. Dead letters are for what is wrong with an event itself. The file is long since what is refused,
delivered and told is read together.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from ..channels import Event, FileChannel
from ..channels.file.recovery.inspection import check_is_channel, look_at_events, place_of
from ..channels.file.store.disk import Disk
from ..channels.file.store.encryption import KeyProvider
from ..client.producer import Producer
from ..durable.event_format import IDENT_SIZE
from ..model.config import ProducerConfig
from ..model.errors import (
    AttemptError,
    ChannelError,
    CloseTimeoutError,
    ConfigError,
    FlushTimeoutError,
    MisconfiguredError,
    PermanentError,
    ProducerError,
    UnauthorizedError,
)
from ..model.interfaces import ChannelStats, Delivery, Receipt, Transaction
from ..model.metrics import Stats
from ..runtime.clock import Deadline, SystemClock
from ..sinks.loghub.sink import LogHubSink
from ..text.names import CREATED_BY_A_WRITE
from ..text.plural import counted
from .channel_logs import OF_AN_AGENT
from .output import say, tell
from .profiles import Settings

#: Seconds between two lines of progress, and between two looks at whether it has to stop.
_PROGRESS, _LOOK = 5.0, 0.2
#: What requests that are under way get when the time is over, seconds: one that is cut off may be stored all the same.
_GRACE = 5.0

_KEY, _PROJECT, _LOGSTORE = (
    "check LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET",
    "check --endpoint: a project exists in one region",
    "create the logstore",
)
_ADVICE = {
    "InvalidAccessKeyId": _KEY,
    "MissAccessKeyId": _KEY,
    "SignatureNotMatch": _KEY,
    "Unauthorized": _KEY + ", and that they may write there",
    "SecurityTokenExpired": "check LOGHUB_SECURITY_TOKEN",
    "InvalidSecurityToken": "check LOGHUB_SECURITY_TOKEN",
    "ProjectNotExist": _PROJECT,
    "LogStoreNotExist": _LOGSTORE,
    "LogstoreNotExist": _LOGSTORE,
    "BadResponse": "check --endpoint",
    "ProxyAuthenticationRequired": "write user and password into the proxy's URL (HTTP_PROXY, HTTPS_PROXY)",
}

#: How :class:`~producer.channels.ProcessFileChannel` ends the name of a process's directory.
_OF_A_PROCESS = re.compile(r"-\d+-[0-9a-f]{8}$")


class DrainRefusedError(ProducerError):
    """Nothing was taken from the channel: LogHub would not have what is in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the events of a channel.

    :ivar delivered: to the server.
    :ivar refused: by the server, for good; they are among the dead letters.
    :ivar damaged: on the disk, and lost.
    :ivar left: in the channel.
    """

    delivered: int
    refused: int
    damaged: int
    left: int

    @property
    def complete(self) -> bool:
        """Whether everything was delivered."""
        return not (self.refused or self.damaged or self.left)


class _DeadLetters:
    """The channel for what the server refuses, which is opened when it refuses something.

    So on a full disk the rest can be delivered all the same, and where nothing is refused nothing is made.

    :ivar directory: where it is.
    :ivar refused: how many events were put into it, known once it is closed.
    """

    def __init__(self, directory: str, keys: KeyProvider | None) -> None:
        self.directory, self._keys = directory, keys
        self.refused = 0
        self._channel: FileChannel | None = None
        self._before = -1

    @property
    def name(self) -> str:
        """See :class:`~producer.model.interfaces.Channel`."""
        return self.directory

    @property
    def synced_sequence(self) -> int:
        """See :class:`~producer.model.interfaces.Channel`."""
        return -1 if self._channel is None else self._channel.synced_sequence

    def transaction(self) -> Transaction:
        """See :class:`~producer.model.interfaces.Channel`.

        :raises ChannelError: it cannot be opened; what was refused stays in the channel from which it came.
        """
        if self._channel is None:
            self._channel = FileChannel(self.directory, minimum_free_space=0, encryption=self._keys)
            self._before = self._channel.synced_sequence
        return self._channel.transaction()

    def sync(self, timeout: float | None = None) -> None:
        """See :class:`~producer.model.interfaces.Channel`."""
        if self._channel is not None:
            self._channel.sync(timeout)

    def stats(self) -> ChannelStats:
        """See :class:`~producer.model.interfaces.Channel`."""
        return ChannelStats(name=self.name) if self._channel is None else self._channel.stats()

    def close(self) -> None:
        """See :class:`~producer.model.interfaces.Channel`."""
        channel, self._channel = self._channel, None
        if channel is not None:
            with channel:
                self.refused = len({_identity(event) for event in channel.peek() if self._is_new(event)})

    def _is_new(self, event: Event) -> bool:
        return event.sequence is not None and event.sequence > self._before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _identity(event: Event) -> bytes | int | None:
    """Of the event that was refused: one that was cut in two has two dead letters."""
    return event.sequence if event.headers.get("error_code") == "UnreadableEvent" else event.body[:IDENT_SIZE]


class _Sink(LogHubSink):
    """Notes what somebody has to mend before any event can be delivered.

    :ivar stopped: why nothing more is to be tried, in words; empty as long as there is no reason.
    """

    def __init__(self, config: ProducerConfig) -> None:
        super().__init__(config, SystemClock(), "drain")
        self.stopped = ""
        self._lock = threading.Lock()  # guards _unauthorized
        self._unauthorized = 0

    def end_at(self, end: float | None) -> None:
        """Let no request go on beyond this, monotonic seconds; None says nothing."""
        if end is not None:
            self._transport.hurry(Deadline(end))

    def write(self, delivery: Delivery) -> Receipt:
        """See :class:`~producer.model.interfaces.Sink`."""
        try:
            receipt = super().write(delivery)
        except AttemptError as error:
            if isinstance(error, MisconfiguredError) or self._is_unauthorized(error):
                self.stopped = self.stopped or _words(delivery.key.project, delivery.key.logstore, error)
            raise
        with self._lock:
            self._unauthorized = 0
        return receipt

    def _is_unauthorized(self, error: AttemptError) -> bool:
        """Whether the credentials are refused again and again: those of the environment do not change."""
        if not isinstance(error, UnauthorizedError):
            return False
        with self._lock:
            self._unauthorized += 1
            return self._unauthorized > (error.max_consecutive or 0)

    def check(self, destinations: Sequence[tuple[str, str]]) -> None:
        """Ask for each logstore, as far as its project answers.

        :raises DrainRefusedError: a refusal that somebody has to mend.
        """
        silent = set[str]()
        for project, logstore in destinations:
            if project not in silent and not self._answers(project, logstore):
                silent.add(project)

    def _answers(self, project: str, logstore: str) -> bool:
        """Whether there was an answer; a failure that may pass is told, and no reason not to begin."""
        error = self._failure(project, logstore)
        if error is None or error.code == "Unauthorized":  # a key that may write need not be allowed to ask
            return True
        words = _words(project, logstore, error)
        if isinstance(error, PermanentError | UnauthorizedError):
            raise DrainRefusedError(f"nothing was taken from the channel: {words}") from error
        tell(f"could not check the target before the drain, going on: {words}")
        return False

    def _failure(self, project: str, logstore: str) -> AttemptError | None:
        error: AttemptError | None = None
        for _ in range(2):
            try:
                self.ask_for_shards(project, logstore)
            except AttemptError as failure:
                if CREATED_BY_A_WRITE in failure.message:
                    return None
                error = failure
                if not error.immediate:
                    break
            else:
                return None
        return error


def _words(project: str, logstore: str, error: AttemptError) -> str:
    status = "" if error.http_status is None else f"status {error.http_status}, "
    advice = _ADVICE.get(error.code)
    return (
        f"{project}/{logstore}: {status}{error} (request id {error.request_id or 'none'})"
        f"{f': {advice}' if advice else ''}"
    )


@contextmanager
def _sink_for(channel: FileChannel, settings: Settings, config: ProducerConfig, end: float | None) -> Iterator[_Sink]:
    """A sink that knows the projects in the channel, and has asked LogHub for their logstores.

    :param end: when the time is over, monotonic seconds.
    """
    of_agent = next((event for event in channel.peek() if OF_AN_AGENT in event.headers), None)
    if of_agent is not None:
        raise _of_an_agent(channel.name, channel.directory, of_agent)
    destinations = sorted(
        {
            (str(event.headers["project"]), str(event.headers.get("logstore") or ""))
            for event in channel.peek()
            if event.headers.get("project")
        }
    )
    projects = dict.fromkeys(project for project, _ in destinations)
    sink = _Sink(config)
    try:
        for name in projects:
            sink.put_project(settings.project_config(name))
        size = channel.stats().size
        of = f", of {', '.join(projects)}" if projects else ""
        say(f"{counted(size, 'event')} to deliver{of}", flush=True)
        sink.end_at(end)
        sink.check(destinations)
        sink.end_at(None if end is None else end + _GRACE)
        yield sink
    finally:
        sink.close()


def drain(
    directory: str,
    *,
    settings: Settings,
    data_directories: Sequence[str] = (),
    dead_letter: str | None = None,
    keys: KeyProvider | None = None,
    timeout: float | None = None,
) -> Outcome:
    """Deliver what is in a channel; prints what becomes of it.

    :param settings: the endpoint, and who signs.
    :param dead_letter: the directory for what the server refuses for good; None is :func:`letters_of` ``directory``.
    :param timeout: seconds, after which what is left stays, and requests under way have a few more; None for no limit.
    :raises DrainRefusedError: LogHub refuses the credentials, the project or the logstore; nothing was taken.
    :raises UsageError: the endpoint or credentials are missing.
    :raises ConfigError: the dead letters would go where they come from.
    :raises ChannelError: there is no channel, or it cannot be opened.
    :raises KeyboardInterrupt: after the outcome was told.
    """
    end = None if timeout is None else time.monotonic() + timeout
    letters = dead_letter or letters_of(directory)
    _check(directory, data_directories, letters)
    _check_is_ours(directory, data_directories, keys)
    for needed in ("endpoint", "access_key_id", "access_key_secret"):  # told now, not when something is sent
        settings.needed(needed)
    config = settings.producer_config(name="drain", drain_timeout_ms=0)
    with FileChannel(
        directory,
        minimum_free_space=0,
        data_directories=data_directories,
        encryption=keys,
        checkpoint_interval=10.0,
    ) as channel:
        dead_letters = _DeadLetters(letters, keys)
        with _sink_for(channel, settings, config, end) as sink:
            producer = Producer(
                config=config,
                channel=channel,
                dead_letter=dead_letters,
                sink=sink,
            )
            producer._losses.mute()
            interrupted = False
            try:
                with _ended(producer):
                    _wait(producer, sink, end)
            except KeyboardInterrupt:
                interrupted = True
    outcome = _outcome(producer.stats(), dead_letters.refused)
    _tell_outcome(outcome, directory, letters)
    if sink.stopped:
        tell(f"stopped: {sink.stopped}; what was not delivered is still in the channel")
    if interrupted:
        raise KeyboardInterrupt
    return outcome


def letters_of(directory: str) -> str:
    """The place for what the server refuses: beside the channel, and never below the base of several processes.

    There another process would take it for the directory of one that died, and adopt what is in it.
    """
    base, name = os.path.split(directory)
    return f"{base if _OF_A_PROCESS.search(name) else directory}.dead-letter"


def _check(directory: str, data: Sequence[str], letters: str) -> None:
    """Whether there is a channel, and what it refuses can be kept elsewhere; nothing is made.

    :raises ChannelError: there is none.
    :raises ConfigError: the dead letters would go where they come from.
    """
    check_is_channel(place_of(Disk(), directory, data))
    if os.path.realpath(letters) in map(os.path.realpath, (directory, *data)):
        raise ConfigError("--dead-letter", "must be another directory than the one to drain", letters)
    if os.path.isdir(letters) and os.listdir(letters):
        check_is_channel(place_of(Disk(), letters, ()))


def _check_is_ours(directory: str, data: Sequence[str], keys: KeyProvider | None) -> None:
    """Look at the first event before the channel is opened, which writes into its directory.

    :raises ChannelError: it is an agent's, or cannot be read.
    """
    first = next(look_at_events(directory, data_directories=data, keys=keys), None)
    if first is not None and OF_AN_AGENT in first.headers:
        name = os.path.basename(directory) or directory
        raise _of_an_agent(name, directory, first)


def _of_an_agent(name: str, directory: str, event: Event) -> ChannelError:
    """Build the error that says how events of an agent are delivered: dead letters, once their cause is fixed."""
    sink = event.headers.get("dead_letter_sink")
    rule = "its events are batches of an agent's, whose configuration says where to: run `producer agent`"
    if sink is not None:
        reason = event.headers.get("dead_letter_reason") or "no reason is said"
        rule = (
            f"its events are dead letters of an agent's sink {sink}, the first one because: {reason}. Fix the cause,"
            f" then have the agent deliver them: add a copy of [sinks.{sink}] under another name, with channel = "
            f"{_name_in_agent(directory)}, to its configuration; a running agent takes it up, and it can go once the "
            "channel is empty. To look at them: `producer channel export DIR`"
        )
    return ChannelError(name, rule)


def _name_in_agent(directory: str) -> str:
    """Return the name that the agent's configuration has for a channel, as TOML, or words for it.

    Only the place that the agent itself chooses, ``STATE/channels/NAME/events``, has the name in it.
    """
    parent, last = os.path.split(os.path.abspath(directory))
    above, name = os.path.split(parent)
    if (os.path.basename(above), last) == ("channels", "events"):
        return f'"{name}"'
    return f"the name of the channel whose directory is {directory}"


def _outcome(stats: Stats, refused: int) -> Outcome:
    channel = stats.channel
    settled = 0 if channel is None else channel.take_successes
    damaged = 0 if channel is None or channel.file is None else channel.file.lost_events
    return Outcome(max(0, settled - refused), refused, damaged, stats.stored)


def _tell_outcome(outcome: Outcome, directory: str, letters: str) -> None:
    say(
        f"{counted(outcome.delivered, 'event')} delivered, {outcome.refused} refused permanently, "
        f"{outcome.damaged} damaged, {outcome.left} left in the channel"
    )
    if outcome.refused:
        say(f"those refused are in {letters}, with the reasons")
    if outcome.damaged:
        say(f"those damaged are lost; the log says what became of their segments: look into {directory}/quarantine")


@contextmanager
def _ended(producer: Producer) -> Iterator[None]:
    """Close the producer behind a block; requests in flight get :data:`_GRACE`."""
    try:
        yield
    finally:
        with suppress(CloseTimeoutError):
            producer.close(timeout=_GRACE)


def _wait(producer: Producer, sink: _Sink, end: float | None) -> None:
    """Wait until the channel is empty, or the time is over, or something has to be mended."""
    now = told = time.monotonic()
    while not sink.stopped:
        try:
            producer.flush(_LOOK if end is None else min(_LOOK, max(0.0, end - now)))
        except FlushTimeoutError:
            now = time.monotonic()
            if end is not None and now >= end:
                return
            if now - told >= _PROGRESS:
                told = now
                say(f"{counted(producer.stats().stored, 'event')} left", flush=True)
        else:
            return
