"""Interfaces: the protocols of sinks, credentials providers and channels.

The file is long because an author of a plug-in finds the whole contract in it.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from ..runtime.clock import Clock, Deadline
from .config import ProjectConfig
from .credentials import Credentials
from .errors import InvalidArgumentError
from .records import StreamKey

__all__ = [
    "ADOPTED_HEADER",
    "Channel",
    "ChannelStats",
    "Clock",
    "CredentialsProvider",
    "Delivery",
    "Event",
    "FileStats",
    "Notes",
    "Payload",
    "Receipt",
    "SequenceId",
    "Sink",
    "Stored",
    "Transaction",
]


@runtime_checkable
class CredentialsProvider(Protocol):
    """A provider of credentials that change."""

    def get_credentials(self) -> Credentials:
        """Return the current credentials. May block on I/O: it is called on a producer's thread, never in ``send``."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The body of a batch, the same for the first attempt and every retry.

    :ivar body: the bytes, compressed.
    :ivar raw_size: their size before compression, bytes.
    :ivar md5: the digest of the body, 16 bytes, if it was made with it; else empty.
    """

    body: bytes
    raw_size: int
    md5: bytes = b""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The server's acknowledgement.

    :ivar request_id: the server's id of the request.
    :ivar http_status: the HTTP status.
    """

    request_id: str = ""
    http_status: int | None = 200


@dataclass(frozen=True, slots=True)
class SequenceId:
    """The number that makes a batch idempotent: the server stores only increasing numbers of a key.

    :ivar key: the hash key, 32 lower-case hexadecimal digits; it identifies the writer and chooses the shard.
    :ivar number: the number, from 1 on.
    """

    key: str
    number: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch for a sink to deliver.

    :ivar key: the stream that it belongs to.
    :ivar pack_id: the value of the ``__pack_id__`` tag, or None.
    :ivar payload: the body from :meth:`Sink.encode`.
    :ivar sequence: the number in an idempotent stream; None for other streams.
    """

    key: StreamKey
    pack_id: str | None
    payload: Payload
    sequence: SequenceId | None = None


#: Encoded logs, concatenated.
Record: TypeAlias = bytes | memoryview


class Sink(ABC):
    """The destination of batches; inherit from it to deliver to another system than LogHub.

    A sink must have :meth:`encode` and :meth:`write`; the other methods have defaults. Several IO threads call the
    methods at once. Only the sink defines the body's encoding and the projects. A sink with locks, threads or
    connections must make new ones in a forked child (see :mod:`producer.runtime.forks`).

    Example:

        >>> from loghub import LogItem, Payload, Producer, Receipt, Sink
        >>> class MemorySink(Sink):
        ...     def __init__(self):
        ...         self.bodies = []
        ...
        ...     def encode(self, key, pack_id, records):
        ...         body = b"".join(bytes(record) for record in records)
        ...         return Payload(body, len(body))
        ...
        ...     def write(self, delivery):
        ...         self.bodies.append(delivery.payload.body)
        ...         return Receipt()
        ...
        >>> sink = MemorySink()
        >>> with Producer(sink=sink) as producer:
        ...     future = producer.send("any", "app-log", LogItem({"k": "v"}, time=1))
        ...
        >>> sink.bodies[0].hex(" ")
        '0a 0a 08 01 12 06 0a 01 6b 12 01 76'
    """

    def put_project(self, project: ProjectConfig) -> None:
        """Add a project, or replace its endpoint and credentials; the next attempts use them.

        :param project: the project to add or to replace.
        :raises InvalidArgumentError: the sink takes no projects, which is the default.
        """
        raise InvalidArgumentError(f"{type(self).__name__} has no projects: leave out {project.project!r}")

    def remove_project(self, name: str) -> None:
        """Remove a project: its records fail from now on. An unknown name is no error.

        :param name: the name of the project.
        """

    def project_configs(self) -> tuple[ProjectConfig, ...]:
        """Return the projects, in the order in which they were added."""
        return ()

    def check_project(self, name: str) -> None:
        """Raise if nothing can be sent to this project; ``send`` calls it and caches the answer until one is removed.

        :param name: the name of the project.
        :raises InvalidArgumentError: the project is unknown; by default every project is known.
        """

    def probe(self, project: str, logstore: str | None, timeout: float) -> str:
        """Ask the destination whether it would accept logs; return its answer as a sentence.

        :param project: the name of the project.
        :param logstore: the logstore to check; None to check only the project.
        :param timeout: seconds.
        :raises TargetError: the fault, as a sentence.
        """
        return f"{type(self).__name__} has no remote endpoint to check: logs for {project} go where it writes"

    def destination(self, key: StreamKey) -> Hashable:
        """Return the destination that the stream shares with others, such as its endpoint.

        Requests to one destination are limited together, and paused together while it cannot be reached. Called often,
        under locks: it must only look up a value.

        :param key: the stream.
        """
        return key.project

    def endpoints(self) -> tuple[EndpointStats, ...]:
        """Return the endpoint in use of each project that has several."""
        return ()

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        """Return the number of bytes that a body has besides its records.

        :param key: the stream.
        :param pack_id: the value of the ``__pack_id__`` tag; None for none.
        """
        return 0

    @abstractmethod
    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        """Make the body of a batch from its records.

        Called once for each batch, and with a channel once for each attempt. An exception counts as a bug.

        :param key: the stream.
        :param pack_id: the value of the ``__pack_id__`` tag; None for none.
        :param records: the encoded logs.
        """

    def decode(self, payload: Payload) -> list[bytes]:
        """Return the records that :meth:`encode` was given, one log each.

        Needed to split a batch after a :class:`~producer.model.errors.BodyTooLargeError`. A sink that never raises that
        needs no ``decode``.

        :param payload: the body to take apart.
        """
        raise NotImplementedError(
            f"{type(self).__name__} raised BodyTooLargeError, but has no decode() to split a batch"
        )

    @abstractmethod
    def write(self, delivery: Delivery) -> Receipt:
        """Deliver a batch: exactly one attempt.

        :param delivery: the batch to deliver.
        :returns: the acknowledgement.
        :raises AttemptError: the attempt failed. The class of the error says whether a retry makes sense, and its
            ``may_have_been_stored`` whether this attempt may have stored the batch.
        """

    def hurry(self, deadline: Deadline) -> None:
        """Limit all attempts, present and future ones, by a deadline; called when the producer closes.

        The attempt then raises its error. Without this method an attempt ends by its own limit, on a thread that
        ``close`` does not wait for.

        :param deadline: the end of the close.
        """

    def close(self) -> None:
        """Release connections and threads; called once, after the last write."""


#: Default of the headers.
_NEW: Any = type("_New", (), {"__repr__": lambda _: "{}"})()


@dataclass(frozen=True, slots=True, init=False)
class Event:
    """One item of a channel.

    Example:

        >>> Event({"host": "web-1"}, b"hello")
        Event(headers={'host': 'web-1'}, body=b'hello', sequence=None)

    :ivar headers: values by name; a value may be None.
    :ivar body: the content, opaque to channels.
    :ivar sequence: sequence number assigned at commit, unique and increasing; None before.
    """

    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes = b""
    sequence: int | None = field(default=None, compare=False)

    def __init__(
        self, headers: Mapping[str, str | None] = _NEW, body: bytes = b"", sequence: int | None = None
    ) -> None:
        # A frozen dataclass would use object.__setattr__, which is a third of the time of a take.
        _set_headers(self, {} if headers is _NEW else headers)
        _set_body(self, body)
        _set_sequence(self, sequence)


_set_headers, _set_body, _set_sequence = (vars(Event)[name].__set__ for name in ("headers", "body", "sequence"))


class Stored(enum.Enum):
    """Durability of a committed put when ``commit`` returns."""

    #: In the memory of the process: survives neither.
    MEMORY = "memory"
    #: Written, and in the page cache: survives the process, not the machine. ``Channel.sync`` waits for the disk.
    CACHE = "cache"
    #: On the disk: survives the machine.
    DISK = "disk"


class Transaction(Protocol):
    """A unit of work on a channel. Threads may pass it on, and many may be open at once.

    As a context manager it begins, commits when the block ends, rolls back when it raises, and closes. All methods are
    part of the protocol that a channel implements.

    Example:

        >>> with channel.transaction() as transaction:
        ...     transaction.put_many([Event({}, b"a"), Event({}, b"b")])
        >>> taking = channel.transaction()
        >>> taking.begin()
        >>> events = taking.take(10)
        >>> taking.acknowledge(events[:1])
        >>> taking.give_back(events[1:])
        >>> taking.commit()
        <Stored.MEMORY: 'memory'>
        >>> taking.close()
        >>> channel.stats().size
        1
    """

    @property
    def last_sequence(self) -> int | None:
        """The sequence number of the last put, once committed; None without puts."""

    def begin(self) -> None:
        """Open the transaction."""

    def put(self, event: Event) -> None:
        """Add an event, which no taker sees before :meth:`commit`.

        :param event: the event to store.
        :raises TransactionFullError: the transaction has ``transaction_capacity`` puts.
        """

    def put_many(self, events: Iterable[Event]) -> None:
        """Add many events: all or none.

        :param events: the events to store.
        """

    def take(self, count: int = 1, *, max_bytes: int | None = None, timeout: float | None = None) -> list[Event]:
        """Take up to ``count`` events from the head, in order. Wait only for the first.

        :param count: the largest number of events.
        :param max_bytes: limit on the bytes of all bodies; the first event is always taken. None for no limit.
        :param timeout: seconds to wait for the first; None for the channel's ``keep_alive``.
        :returns: the events; none if the timeout passed.
        :raises TransactionFullError: the transaction has ``transaction_capacity`` takes.
        """

    def acknowledge(self, events: Sequence[Event]) -> None:
        """Commit the takes of these events now; the transaction stays open with the rest.

        :param events: the events to commit, each taken in this transaction.
        :raises ChannelError: an event was not taken in this transaction, or the disk failed.
        """

    def give_back(self, events: Sequence[Event]) -> None:
        """Return these events to their places in the channel; the transaction stays open with the rest.

        Events not taken in it are ignored. A channel without this method can serve a producer, whose stopped streams
        then cannot be resumed.

        :param events: the events to return.
        :raises ChannelError: the channel is closed.
        """

    def commit(self, timeout: float | None = None) -> Stored:
        """Make all puts visible and all takes final. An exception leaves the transaction open.

        :param timeout: seconds to wait for capacity; None for the channel's ``keep_alive``, ``math.inf`` for no limit.
        :returns: the durability of the puts.
        :raises ChannelFullError: no capacity within the timeout; the commit may be retried.
        """

    def rollback(self) -> None:
        """Discard the puts, and return the takes to the head, in order.

        :raises TransactionStateError: another thread is committing it, or has committed it.
        """

    def close(self) -> None:
        """Close a transaction that is committed, rolled back, or was never begun."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


#: Header of an event that was adopted from a dead process's channel: the ``identity`` of that channel's notes, a colon,
#: and the event's sequence number there.
ADOPTED_HEADER = "adopted"


class Notes(Protocol):
    """Short values by name that a channel keeps beside its events, for idempotent streams.

    They are as durable as the channel can make them when a call returns. Thread-safe.
    """

    def read(self, name: str) -> bytes | None:
        """Return the value; None if there is none."""

    def write(self, name: str, value: bytes, newest: int) -> None:
        """Set a value.

        :param name: the name of the value.
        :param value: the new value.
        :param newest: the sequence number of the newest event that the value refers to. If the channel loses that
            event, the value becomes useless.
        :raises ChannelError: the channel is closed, or the disk failed.
        """

    def write_many(self, rows: Iterable[tuple[str, bytes, int]]) -> None:
        """Set many values, all or none; each row is a name, a value and its ``newest``."""

    def items(self, prefix: str) -> dict[str, bytes]:
        """Return the values whose names begin with ``prefix``, by name."""

    def remove(self, name: str) -> None:
        """Remove a value."""

    def prune(self, most: int, keep: Iterable[str]) -> None:
        """Remove the longest unused values beyond ``most``, except the names in ``keep``."""


class Channel(Protocol):
    """A transactional buffer of events between putting and taking threads.

    A channel that survives the process may have ``notes``, a :class:`Notes`. Without it the numbers of idempotent
    streams do not survive. A channel that loses events when closed has ``survives_close``, which is False.
    """

    @property
    def name(self) -> str:
        """The name for messages and statistics."""

    @property
    def synced_sequence(self) -> int:
        """The sequence number up to which all events are on the disk; -1 for none."""

    def transaction(self) -> Transaction:
        """Return a new transaction.

        :raises ChannelClosedError: the channel is closed.
        """

    def sync(self, timeout: float | None = None) -> None:
        """Wait until everything committed is as durable as this channel can make it.

        :param timeout: seconds; None for no limit.
        """

    def stats(self) -> ChannelStats:
        """Return what the channel holds and has done."""

    def close(self) -> None:
        """Close the channel and roll back its open transactions. May be called again."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStats:
    """The endpoint in use of a project that has several.

    :ivar project: the project.
    :ivar endpoint: the endpoint of the next attempt; ``PROJECT at ENDPOINT`` for one of another project.
    :ivar reason: why the endpoints before it are not used, and its own outage if no endpoint answers; empty if the
        first is used.
    :ivar endpoints: all endpoints, the preferred first.
    :ivar left: those of them that were left for an outage.
    :ivar changes: how many times another endpoint was chosen.
    """

    project: str
    endpoint: str
    reason: str
    endpoints: tuple[str, ...]
    left: tuple[str, ...]
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStats:
    """Additions of a file channel to :class:`ChannelStats`. Counts begin at its opening.

    :ivar segments: number of log files.
    :ivar disk_bytes: their bytes.
    :ivar free_bytes: bytes free on the fullest of its disks.
    :ivar unsynced_bytes: bytes written and not yet known to be on the disk.
    :ivar recent_bytes: bytes of memory that cache recent puts for takers that keep up; at most 4 MiB.
    :ivar syncs: number of fsync calls.
    :ivar rolls: segments begun because the previous one was full.
    :ivar checkpoints: checkpoints written.
    :ivar checkpoint_errors: checkpoints that could not be written.
    :ivar checkpoint_backup_errors: checkpoints whose second copy could not be written.
    :ivar checkpoint_fallbacks: bad copies of checkpoints found at the opening.
    :ivar recovered: events found at the opening.
    :ivar adopted: events moved here from the directories of dead processes.
    :ivar replayed: records read at the opening.
    :ivar torn_tails: half-written ends of segments after a crash, cut off and quarantined.
    :ivar damaged_records: invalid records.
    :ivar lost_events: events lost in damaged records, as far as the sequence numbers tell.
    :ivar quarantined: segments copied to ``quarantine/``.
    :ivar poisoned: segments abandoned because a sync failed.
    """

    segments: int = 0
    disk_bytes: int = 0
    free_bytes: int = 0
    unsynced_bytes: int = 0
    recent_bytes: int = 0
    syncs: int = 0
    rolls: int = 0
    checkpoints: int = 0
    checkpoint_errors: int = 0
    checkpoint_backup_errors: int = 0
    checkpoint_fallbacks: int = 0
    recovered: int = 0
    adopted: int = 0
    replayed: int = 0
    torn_tails: int = 0
    damaged_records: int = 0
    lost_events: int = 0
    quarantined: int = 0
    poisoned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStats:
    """Statistics of a channel at one moment; the names are those of Flume's ``ChannelCounter``.

    :ivar name: the channel's name.
    :ivar open: True if it can be used.
    :ivar size: events stored and not taken.
    :ivar taken: events taken in open transactions.
    :ivar capacity: events that it can hold.
    :ivar fill: ``(size + taken) / capacity``, 0 to 1.
    :ivar bytes: bytes of the events stored or taken.
    :ivar byte_capacity: bytes that it can hold; None for no limit.
    :ivar put_attempts: events given to ``put``.
    :ivar put_successes: events whose put was committed.
    :ivar take_attempts: events asked for: one for each call of ``take`` and for each further event that it returned.
    :ivar take_successes: events whose take was committed.
    :ivar put_errors: failed puts and commits of puts: channel full, or disk failure.
    :ivar take_errors: failed takes and commits of takes; an unreadable event counts once.
    :ivar put_rate: committed puts per second, over about the last minute.
    :ivar take_rate: committed takes per second, over about the last minute.
    :ivar oldest_event_age: seconds since the put of the event at the head; None if there is none.
    :ivar last_take_age: seconds since the last committed take; None if there was none.
    :ivar waiting: threads that wait for capacity.
    :ivar file: the additions of a file channel; None for others.
    """

    name: str
    open: bool = True
    size: int = 0
    taken: int = 0
    capacity: int = 0
    fill: float = 0.0
    bytes: int = 0
    byte_capacity: int | None = None
    put_attempts: int = 0
    put_successes: int = 0
    take_attempts: int = 0
    take_successes: int = 0
    put_errors: int = 0
    take_errors: int = 0
    put_rate: float = 0.0
    take_rate: float = 0.0
    oldest_event_age: float | None = None
    last_take_age: float | None = None
    waiting: int = 0
    file: FileStats | None = None
