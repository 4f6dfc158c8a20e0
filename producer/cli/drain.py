"""Deliver the events in the directory of a file channel, for ``producer channel drain``.

One wrong character in an access key must not empty a channel. So the drain first queries LogHub for every logstore of
the events. An error that an operator can fix, before or during the drain, stops it, and the events stay in the
channel. Only an event that is rejected for its own content becomes a dead letter.

The file is long because checks, delivery and outcome are read together.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

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
from ..runtime.closing import Closing
from ..runtime.locks import Lock
from ..sinks.loghub.sink import LogHubSink
from ..text.names import CREATED_BY_A_WRITE
from ..text.plural import counted
from .channel_logs import OF_AN_AGENT
from .output import say, tell
from .profiles import Settings

#: Seconds between two lines of progress, and between two checks whether to stop.
_PROGRESS_SECONDS, _CHECK_SECONDS = 5.0, 0.2
#: Seconds for requests in flight after the time limit: LogHub may store a request that is cut off.
_GRACE_SECONDS = 5.0

_KEY, _PROJECT, _LOGSTORE = (
    "check LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET",
    "check --endpoint: a project exists in one region",
    "create the logstore",
)
_ADVICE = {
    "InvalidAccessKeyId": _KEY,
    "MissAccessKeyId": _KEY,
    "SignatureNotMatch": _KEY,
    "Unauthorized": _KEY + ", and the permission to write there",
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
    """Raised before anything is taken from the channel, when LogHub would refuse its events."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of a channel's events after a drain, by outcome.

    :ivar delivered: events that the server acknowledged.
    :ivar refused: events that the server rejected permanently, stored as dead letters.
    :ivar damaged: events that were damaged on the disk, and are lost.
    :ivar left: events that remain in the channel.
    """

    delivered: int
    refused: int
    damaged: int
    left: int

    @property
    def complete(self) -> bool:
        """True if every event was delivered."""
        return not (self.refused or self.damaged or self.left)


class _DeadLetters(Closing):
    """The channel of dead letters, opened at the first rejected event.

    So without a rejected event no directory is created, and a full disk does not stop the drain.

    :ivar directory: its directory.
    :ivar refused: the number of events put into it, known once it is closed.
    """

    def __init__(self, directory: str, keys: KeyProvider | None) -> None:
        self.directory, self._keys = directory, keys
        self.refused = 0
        self._channel: FileChannel | None = None
        self._before = -1

    @property
    def name(self) -> str:
        return self.directory

    @property
    def synced_sequence(self) -> int:
        return -1 if self._channel is None else self._channel.synced_sequence

    def transaction(self) -> Transaction:
        """Open the channel if needed, and begin a transaction.

        :raises ChannelError: the channel cannot be opened; the rejected event stays in the drained channel.
        """
        if self._channel is None:
            self._channel = FileChannel(self.directory, minimum_free_space=0, encryption=self._keys)
            self._before = self._channel.synced_sequence
        return self._channel.transaction()

    def sync(self, timeout: float | None = None) -> None:
        if self._channel is not None:
            self._channel.sync(timeout)

    def stats(self) -> ChannelStats:
        return ChannelStats(name=self.name) if self._channel is None else self._channel.stats()

    def close(self) -> None:
        """Close the channel, and count the dead letters of this drain."""
        channel, self._channel = self._channel, None
        if channel is not None:
            with channel:
                self.refused = len({_identity(event) for event in channel.peek() if self._is_new(event)})

    def _is_new(self, event: Event) -> bool:
        return event.sequence is not None and event.sequence > self._before


def _identity(event: Event) -> bytes | int | None:
    """Return the identity of the rejected event: an event that was split has several dead letters."""
    return event.sequence if event.headers.get("error_code") == "UnreadableEvent" else event.body[:IDENT_SIZE]


class _Sink(LogHubSink):
    """A LogHub sink that records the error that an operator must fix before any event can be delivered.

    :ivar stopped: the error that stops the drain, in words; empty if there is none.
    """

    def __init__(self, config: ProducerConfig) -> None:
        super().__init__(config, SystemClock(), "drain")
        self.stopped = ""
        self._lock = Lock()  # guards _unauthorized
        self._unauthorized = 0

    def end_at(self, end: float | None) -> None:
        """Set the deadline of all requests, monotonic seconds; None to leave it."""
        if end is not None:
            self._transport.hurry(Deadline(end))

    def write(self, delivery: Delivery) -> Receipt:
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
        """Return True if the server has refused the credentials too often in a row: they do not change here."""
        if not isinstance(error, UnauthorizedError):
            return False
        with self._lock:
            self._unauthorized += 1
            return self._unauthorized > (error.max_consecutive or 0)

    def check(self, destinations: Sequence[tuple[str, str]]) -> None:
        """Query each logstore, except those of a project that does not answer.

        :raises DrainRefusedError: LogHub refuses for a reason that an operator must fix.
        """
        silent = set[str]()
        for project, logstore in destinations:
            if project not in silent and not self._answers(project, logstore):
                silent.add(project)

    def _answers(self, project: str, logstore: str) -> bool:
        """Return True if LogHub answered. A transient failure is only reported.

        :raises DrainRefusedError: LogHub refuses permanently.
        """
        error = self._failure(project, logstore)
        if error is None or error.code == "Unauthorized":  # a key may be allowed to write, but not to query
            return True
        words = _words(project, logstore, error)
        if isinstance(error, PermanentError | UnauthorizedError):
            raise DrainRefusedError(f"nothing was taken from the channel: {words}") from error
        tell(f"cannot check the target before the drain, draining anyway: {words}")
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
    """Yield a sink with the channel's projects, after LogHub was queried for their logstores.

    :param end: the deadline, monotonic seconds; None for no limit.
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
        names = f" to {', '.join(projects)}" if projects else ""
        say(f"{counted(size, 'event')} to deliver{names}", flush=True)
        sink.end_at(end)
        sink.check(destinations)
        sink.end_at(None if end is None else end + _GRACE_SECONDS)
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
    """Deliver a channel's events, and print the outcome.

    :param settings: the endpoint and the access key.
    :param dead_letter: the directory for permanently rejected events; None for :func:`letters_of` ``directory``.
    :param timeout: the limit in seconds, with a few more for requests in flight; None for no limit. Undelivered events
        stay in the channel.
    :raises DrainRefusedError: LogHub refuses the credentials, the project or the logstore; nothing was taken.
    :raises UsageError: the endpoint or credentials are missing.
    :raises ConfigError: the dead letters would go into the channel itself.
    :raises ChannelError: there is no channel, or it cannot be opened.
    :raises KeyboardInterrupt: a signal stopped the drain; the outcome is printed first.
    """
    end = None if timeout is None else time.monotonic() + timeout
    letters = dead_letter or letters_of(directory)
    _check(directory, data_directories, letters)
    _check_is_ours(directory, data_directories, keys)
    settings.needed("endpoint")  # report it before anything is sent
    settings.check_credentials()
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
    _print_outcome(outcome, directory, letters)
    if sink.stopped:
        tell(f"stopped: {sink.stopped}; undelivered events are still in the channel")
    if interrupted:
        raise KeyboardInterrupt
    return outcome


def letters_of(directory: str) -> str:
    """Return the directory for dead letters: beside the channel, never below the base of several processes.

    Below the base, orphan recovery would adopt it like the directory of a process that died.
    """
    base, name = os.path.split(directory)
    return f"{base if _OF_A_PROCESS.search(name) else directory}.dead-letter"


def _check(directory: str, data: Sequence[str], letters: str) -> None:
    """Check the directories of the channel and of its dead letters; create nothing.

    :raises ChannelError: one of them is not a channel.
    :raises ConfigError: the dead letters would go into the channel itself.
    """
    check_is_channel(place_of(Disk(), directory, data))
    if os.path.realpath(letters) in map(os.path.realpath, (directory, *data)):
        raise ConfigError("--dead-letter", "must differ from the drained directory", letters)
    if os.path.isdir(letters) and os.listdir(letters):
        check_is_channel(place_of(Disk(), letters, ()))


def _check_is_ours(directory: str, data: Sequence[str], keys: KeyProvider | None) -> None:
    """Check the first event. The channel is not opened yet: opening writes into its directory.

    :raises ChannelError: the channel belongs to an agent, or cannot be read.
    """
    first = next(look_at_events(directory, data_directories=data, keys=keys), None)
    if first is not None and OF_AN_AGENT in first.headers:
        name = os.path.basename(directory) or directory
        raise _of_an_agent(name, directory, first)


def _of_an_agent(name: str, directory: str, event: Event) -> ChannelError:
    """Build the error that explains how to deliver an agent's events."""
    sink = event.headers.get("dead_letter_sink")
    rule = (
        "its events are an agent's batches, and only the agent's configuration has their target: run `producer agent`"
    )
    if sink is not None:
        reason = event.headers.get("dead_letter_reason") or "no reason is stored"
        rule = (
            f"its events are dead letters of an agent's sink {sink}; the reason of the first one: {reason}. Fix the"
            f" cause. Then add a copy of [sinks.{sink}] under another name, with channel = "
            f"{_name_in_agent(directory)}, to the agent's configuration: a running agent reloads it and delivers them. "
            "Remove the copy once the channel is empty. To read the events: `producer channel export DIR`"
        )
    return ChannelError(name, rule)


def _name_in_agent(directory: str) -> str:
    """Return a channel's name in the agent's configuration as TOML, or words for it.

    Only the agent's default place, ``STATE/channels/NAME/events``, contains the name.
    """
    parent, last = os.path.split(os.path.abspath(directory))
    above, name = os.path.split(parent)
    if (os.path.basename(above), last) == ("channels", "events"):
        return f'"{name}"'
    return f"the name of the channel whose directory is {directory}"


def _outcome(stats: Stats, refused: int) -> Outcome:
    channel = stats.channel
    completed = 0 if channel is None else channel.take_successes
    damaged = 0 if channel is None or channel.file is None else channel.file.lost_events
    return Outcome(max(0, completed - refused), refused, damaged, stats.stored)


def _print_outcome(outcome: Outcome, directory: str, letters: str) -> None:
    say(
        f"{counted(outcome.delivered, 'event')} delivered, {outcome.refused} refused permanently, "
        f"{outcome.damaged} damaged, {outcome.left} left in the channel"
    )
    if outcome.refused:
        say(f"the refused events are in {letters}, with the reasons")
    if outcome.damaged:
        say(f"the damaged events are lost; the damaged segments are in {directory}/quarantine, see the log")


@contextmanager
def _ended(producer: Producer) -> Iterator[None]:
    """Close the producer after the block; requests in flight get :data:`_GRACE_SECONDS`."""
    try:
        yield
    finally:
        with suppress(CloseTimeoutError):
            producer.close(timeout=_GRACE_SECONDS)


def _wait(producer: Producer, sink: _Sink, end: float | None) -> None:
    """Wait until the channel is empty, the deadline has passed, or an error stops the drain."""
    now = reported = time.monotonic()
    while not sink.stopped:
        try:
            producer.flush(_CHECK_SECONDS if end is None else min(_CHECK_SECONDS, max(0.0, end - now)))
        except FlushTimeoutError:
            now = time.monotonic()
            if end is not None and now >= end:
                return
            if now - reported >= _PROGRESS_SECONDS:
                reported = now
                say(f"{counted(producer.stats().stored, 'event')} left", flush=True)
        else:
            return
