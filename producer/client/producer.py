"""Producer: the public entry point, which assembles the pipeline.

``send`` checks and encodes a log on the caller's thread, then enqueues the record. Batching, delivery and retries run
on the pipeline's threads. The file is long because every public method carries its full reference.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from ..model.config import ProducerConfig, ProjectConfig, producer_options
from ..model.errors import ConfigError, InvalidArgumentError, ProducerClosedError, SendTimeoutError
from ..model.futures import SendFuture
from ..model.metrics import DROPPED, Counters, Stats
from ..model.records import LogItem, StreamKey
from ..model.results import Callback
from ..model.sequence import SequenceKey
from ..runtime.clock import Clock, Deadline, Stop, SystemClock
from ..runtime.forks import Stage, watch_fork
from ..runtime.locks import Lock
from ..runtime.send_timeout import waiting_at_most
from ..text.migration_hints import by_name, hint, meant_method
from ..text.printable import described
from ..wire.speed import TWIN, encode_log
from ..wire.text import fallback_of, moment_of
from . import at_exit
from .async_api import WaitingThreads, on_a_thread
from .loss_report import LossReport
from .stream import Log, Stream, arrow_sending, use_compiled_send
from .stream_keys import StreamKeys, pairs_of
from .timeouts import check_timeout, is_duration

if TYPE_CHECKING:
    from ..model.interfaces import Channel, Sink
    from ..pipeline.batching.accumulator import Piece
    from ..pipeline.batching.open_records import OpenRecords
    from ..pipeline.sender import Door, Sender
    from ..pipeline.settling.leftovers import Fallback
    from ..pipeline.shutdown import Shutdown
    from .arrow import ArrowSender
    from .fallback import FallbackOption

_numbers = itertools.count()
#: The maximum number of threads that store records in a channel for coroutines.
_STORING_THREADS = 4
_OPTIONS = frozenset({"config", "channel", "dead_letter", "fallback", "sink", "clock"})


class Producer:
    """Sends logs in the background: batches by stream, bounded memory, retries, and a result for every record.

    Threads start at the first ``send``, or at construction with a channel, to deliver the events it holds. Use the
    producer as a context manager, or call :meth:`close`. All methods are thread-safe. A forked child may go on using
    it: it starts empty there. Pickling carries the configuration only.

    With a channel, ``send`` returns once the record is stored there, as safely as the channel can. Delivery is then at
    least once, in order within each stream, with one batch of a stream in flight. This producer, or the next one on the
    same channel, delivers the events. Retriable batches are retried forever, or for ``delivery_timeout_ms``.

    Example:

        >>> from loghub import EnvironmentCredentials, Producer, ProjectConfig
        >>> project = ProjectConfig(
        ...     "my-project",
        ...     endpoint="https://cn-hangzhou.log.aliyuncs.com",
        ...     credentials=EnvironmentCredentials(),
        ... )
        >>> with Producer(project) as producer:
        ...     stream = producer.stream("my-project", "app-log", topic="web")
        ...
        >>> producer.closed
        True

    :param projects: the projects to send to; :meth:`put_project_config` adds more.
    :param config: the options; None for all defaults.
    :param channel: the channel that stores records until they are delivered; None to keep them in memory only. The
        producer owns it and closes it.
    :param dead_letter: a channel for undeliverable records, with the reason in their headers; the producer owns it,
        too. None: report them only to callbacks, counters and the log.
    :param fallback: gets the logs of batches that fail, without a channel, and those that integrations drop. The path
        of a file for JSON lines (64 MiB, then one former file ``PATH.1``); a handler of ``logging``, for the same
        lines; or a function, called with :class:`~producer.Undelivered` and the :class:`~producer.Result` on a handler
        thread before the callbacks. An error is logged, and changes no outcome. None to drop the logs.
    :param sink: the destination of batches in place of LogHub: a file (see ``producer.sinks``), a test double (see
        ``producer.testing``), or your own. None for LogHub.
    :param clock: the source of time, for tests; None for the system's clock.
    :raises ConfigError: a project is given twice, an argument has the wrong type, ``dead_letter`` comes without a
        channel or is the same channel, or ``fallback`` comes with a channel.
    :raises ChannelClosedError: the channel is closed.
    """

    def __new__(cls, *_: object, **options: object) -> Self:
        """Refuse an unknown option, and name the option that was probably meant."""
        unknown = [name for name in options if name not in _OPTIONS] if cls is Producer else []
        if unknown:
            raise _unknown_option(unknown[0])
        return super().__new__(cls)

    def __init__(
        self,
        *projects: ProjectConfig,
        config: ProducerConfig | None = None,
        channel: Channel | None = None,
        dead_letter: Channel | None = None,
        fallback: FallbackOption | None = None,
        sink: Sink | None = None,
        clock: Clock | None = None,
    ) -> None:
        from ..model.interfaces import Sink  # see _import_stages
        from ..pipeline.batching.cut import CutRule

        _import_stages(durable=channel is not None)
        if not isinstance(config or ProducerConfig(), ProducerConfig):
            rule = "must be a ProducerConfig; ProducerConfig.from_mapping makes one of a mapping"
            raise ConfigError("config", rule, type(config).__qualname__)
        self.config = config or ProducerConfig()
        self.name = self.config.name or f"producer-{next(_numbers)}"
        for option, given in (("channel", channel), ("dead_letter", dead_letter)):
            if given is not None and (isinstance(given, type) or not callable(getattr(given, "transaction", None))):
                raise ConfigError(option, "must be None or a channel, such as FileChannel(directory)", given)
        if dead_letter is not None and (channel is None or channel is dead_letter):
            raise ConfigError("dead_letter", "must come with a channel, and be another one", dead_letter.name)
        base = getattr(channel, "base", None)
        if base is not None and base == getattr(dead_letter, "base", None):
            raise ConfigError("dead_letter", "must have another base: its events would be adopted as records", base)
        self._channel, self._dead_letter = channel, dead_letter
        self._fallback_option, self._leftovers = fallback, None if fallback is None else _made_of(fallback, channel)
        if sink is not None and (isinstance(sink, type) or not isinstance(sink, Sink)):
            raise ConfigError("sink", "must be None or inherit from producer.Sink", sink)
        self._clock: Clock = clock or SystemClock()
        self._counters = Counters()
        self._losses = LossReport(self.name, self._counters)
        self._sink = _loghub_sink(self.config, self._clock, self.name) if sink is None else sink
        self._sink_given = sink is not None
        self._cut = CutRule.of(self.config)
        # With a durable channel, records wait for a project that is added later.
        self._keys = StreamKeys(self.config, self._sink.check_project if channel is None else None)
        self._fallback = fallback_of(self.config.default, self.config.on_unencodable)
        # With a durable channel, several commits may share one sync of the disk.
        self._waiting = WaitingThreads(f"{self.name}-asend", 1 if channel is None else _STORING_THREADS)
        self._closed = False
        self._lock = Lock()  # guards _pipeline, _shutdown and _closed
        self._pipeline: Sender | None = None
        self._shutdown: Shutdown | None = None
        for project in projects:
            self.put_project_config(project)
        names = [project.project for project in projects]
        if len(set(names)) < len(names):
            raise ConfigError("projects", "must name each project once", ", ".join(names))
        watch_fork(self, Stage.PRODUCERS)
        if channel is not None:
            self._make_pipeline().start()

    def send(
        self,
        project: str,
        logstore: str,
        log: Log | Sequence[Log],
        *more: Never,
        topic: str | None = "",
        source: str | None = None,
        shard_hash: str | None = None,
        tags: Mapping[str, str] | None = None,
        callback: Callback | None = None,
        urgent: bool = False,
    ) -> SendFuture:
        """Enqueue one log, or a list of logs for the same batch; return once memory is reserved.

        With a channel, the call returns once the record is stored there.

        Example:

            >>> future = producer.send("my-project", "app-log", {"level": "INFO"}, topic="web", urgent=True)
            >>> future.result(timeout=10).successful
            True

        :param project: the name of the project, as in its :class:`~producer.ProjectConfig`.
        :param logstore: the name of the logstore in that project.
        :param log: a mapping of field names to values, a :class:`~producer.LogItem`, or a list of these. A list goes
            into one batch or is refused. Later changes to these objects have no effect.
        :param topic: the topic of the LogGroup; None for an empty topic.
        :param source: the source of the LogGroup; None for the configuration's ``source``.
        :param shard_hash: the hash that selects the shard; None to spread batches over all shards.
        :param tags: tags of the LogGroup, added to the configuration's ``log_tags``.
        :param callback: a function called once with the :class:`~producer.Result`, on success and on failure, on a
            handler thread; None for no callback. An exception raised in it is logged.
        :param urgent: True to send the log and its open batch at once, without waiting for ``linger_ms``. With a
            channel this affects only records that have left the channel.
        :returns: the future of the :class:`~producer.Result`.
        :raises InvalidArgumentError: an unknown project, an invalid logstore name, a field name that is not text, a
            value that cannot be sent, or an argument that must be given by name.
        :raises LogSizeTooLargeError: the log is larger than a batch (8 MiB) or than ``total_size_in_bytes``.
        :raises MaxBatchCountExceedError: a list of more than 40,960 logs.
        :raises SendTimeoutError: no memory, or no room in the channel, within ``max_block_ms``.
        :raises ProducerClosedError: :meth:`close` has begun.
        :raises ChannelError: the channel could not store the log, for example on a full disk.
        """
        if more:
            raise InvalidArgumentError(by_name("send takes a project, a logstore and a log", "topic=...", more))
        key = self._keys.key(project, logstore, topic, source, shard_hash, pairs_of(tags) if tags is not None else ())
        future = self._send(key, log, callback)
        if urgent and (pipeline := self._pipeline) is not None:
            pipeline.seal_stream(key)
        return future

    def stream(
        self,
        project: str,
        logstore: str,
        *more: Never,
        topic: str | None = "",
        source: str | None = None,
        shard_hash: str | None = None,
        tags: Mapping[str, str] | None = None,
        ordered: bool = False,
        idempotent: bool | SequenceKey = False,
        max_block_ms: int | None = None,
    ) -> Stream:
        """Return a handle bound to one stream: the fast path for many sends to the same place.

        Example:

            >>> stream = producer.stream("my-project", "app-log", topic="web", tags={"env": "prod"})
            >>> future = stream.send({"level": "INFO"})

        :param project: the name of the project, as in its :class:`~producer.ProjectConfig`.
        :param logstore: the name of the logstore in that project.
        :param topic: the topic of the LogGroup; None for an empty topic.
        :param source: the source of the LogGroup; None for the configuration's ``source``.
        :param shard_hash: the hash that selects the shard; None to spread batches over all shards.
        :param tags: tags of the LogGroup, added to the configuration's ``log_tags``.
        :param ordered: True to store records in the order of ``send``, with one batch of the stream in flight. A batch
            that fails permanently stops the stream until :meth:`Stream.resume`.
        :param idempotent: True for an ``ordered`` stream whose batches are stored exactly once, also when a response is
            lost. Batches carry a random key and a sequence number. With a :class:`~producer.SequenceKey` the caller
            owns both. Each ``send``, and each piece of ``send_many``, is then an undivided batch with the next number.
        :param max_block_ms: how long ``send`` of this handle may block for memory or for room in the channel,
            milliseconds. 0 never blocks, a negative value waits forever; None for the configuration's value.
        :returns: the handle.
        :raises InvalidArgumentError: as :meth:`send`, a ``shard_hash`` that leaves no room for the key of an idempotent
            stream, or a ``max_block_ms`` that is not an integer.
        """
        if more:
            raise InvalidArgumentError(by_name("stream takes a project and a logstore", "topic=...", more))
        own = pairs_of(tags)
        key = self._keys.ordered(
            project, logstore, topic, source, shard_hash, own, ordered=ordered, idempotent=idempotent
        )
        if max_block_ms is not None and type(max_block_ms) is not int:
            raise InvalidArgumentError(f"max_block_ms: must be None or an integer, got {described(max_block_ms)}")
        return Stream(self, key, max_block_ms)

    async def asend(
        self,
        project: str,
        logstore: str,
        log: Log | Sequence[Log],
        *more: Never,
        topic: str | None = "",
        source: str | None = None,
        shard_hash: str | None = None,
        tags: Mapping[str, str] | None = None,
        callback: Callback | None = None,
        urgent: bool = False,
    ) -> SendFuture:
        """Do what :meth:`send` does without blocking the event loop, as :meth:`Stream.asend` does for one stream.

        Example:

            >>> import asyncio
            >>> future = asyncio.run(producer.asend("my-project", "app-log", {"level": "INFO"}, urgent=True))
            >>> future.result(timeout=10).successful
            True

        :param project: as :meth:`send`, as are the others.
        :param logstore: the name of the logstore in that project.
        :param log: a mapping of field names to values, a :class:`~producer.LogItem`, or a list of these.
        :param topic: the topic of the LogGroup; None for an empty topic.
        :param source: the source of the LogGroup; None for the configuration's ``source``.
        :param shard_hash: the hash that selects the shard; None to spread batches over all shards.
        :param tags: tags of the LogGroup, added to the configuration's ``log_tags``.
        :param callback: a function called once with the :class:`~producer.Result`; None for no callback.
        :param urgent: True to send the log and its open batch at once.
        :returns: the future of the :class:`~producer.Result`, which can be awaited.
        :raises ProducerError: as :meth:`send`, or no thread could be started.
        """
        if more:
            raise InvalidArgumentError(by_name("asend takes a project, a logstore and a log", "topic=...", more))
        key = self._keys.key(project, logstore, topic, source, shard_hash, pairs_of(tags) if tags is not None else ())
        return await Stream(self, key).asend(log, callback=callback, urgent=urgent)

    def _door(self, callback: Callback | None) -> Door:
        """Return the entry to the pipeline.

        :raises InvalidArgumentError: the callback is not callable.
        """
        if callback is not None and not callable(callback):
            raise InvalidArgumentError(
                f"callback: must be None or callable with one argument, got {described(callback)}"
            )
        return (self._pipeline or self._make_pipeline()).admission

    def _send(self, key: StreamKey, log: Log | Sequence[Log], callback: Callback | None) -> SendFuture:
        door = self._door(callback)
        now, nanos = moment_of(self._clock.time())
        logs = 1
        if type(log) is not dict and isinstance(log, list | tuple):
            if not log:
                raise InvalidArgumentError("a list of logs must not be empty")
            record = b"".join([encode_log(one, now, nanos, self._fallback) for one in log])
            logs = len(log)
        else:
            record = encode_log(log, now, nanos, self._fallback)  # type: ignore[arg-type]  # one log
        try:
            return door.accept(key, record, logs, callback)
        except ProducerClosedError:
            at_exit.wait_for_signal()
            raise

    async def _asend(self, stream: Stream, log: Log | Sequence[Log], callback: Callback | None) -> SendFuture:
        from asyncio import wrap_future  # most programs have no event loop, and asyncio is a large import

        if self._channel is None:
            with contextlib.suppress(SendTimeoutError), waiting_at_most(0.0):
                return stream._send(log, callback)
        limit = self.config.max_block_ms if stream.max_block_ms is None else stream.max_block_ms
        deadline = Deadline.after(self._clock, None if limit < 0 else limit / 1000)

        def send() -> SendFuture:
            with waiting_at_most(deadline.remaining(self._clock)):
                return stream._send(log, callback)

        try:
            return await wrap_future(self._waiting.submit(send))
        except ProducerClosedError:
            at_exit.wait_for_signal()
            raise

    def _open_records(self, future: SendFuture) -> OpenRecords | None:
        """Return the open batch for the next logs of a send's stream; None if there is none."""
        pipeline = self._pipeline
        return None if pipeline is None else pipeline.admission.open_records(future)

    def _send_many(self, key: StreamKey, logs: Iterable[Log], callback: Callback | None) -> list[SendFuture]:
        door = self._door(callback)
        if isinstance(logs, Mapping | LogItem | str) or not isinstance(logs, Iterable):
            kind = type(logs).__qualname__
            raise InvalidArgumentError(f"send_many takes a list of logs or an iterator, got {kind}: send takes one log")
        try:
            return door.accept_pieces(self._pieces(key, logs), callback)
        except ProducerClosedError:
            at_exit.wait_for_signal()
            raise

    def _send_lines(
        self, key: StreamKey, block: Any, field: str, time: float | datetime | None, callback: Callback | None
    ) -> list[SendFuture]:
        from .lines import send_lines

        door = self._door(callback)
        try:
            now = moment_of(self._clock.time())[0]
            return send_lines(door, key, self._cut, block, field=field, time=time, now=now, callback=callback)
        except ProducerClosedError:
            at_exit.wait_for_signal()
            raise

    def _arrow_sender(
        self, key: StreamKey, schema: Any, options: Mapping[str, str | None], callback: Callback | None
    ) -> ArrowSender:
        door, arrow = self._door(callback), arrow_sending()
        # A schema with metadata, such as one from a pandas.DataFrame, cannot be hashed.
        encoder = arrow.encoder_of(schema.remove_metadata(), tuple(options.items()))
        sender: ArrowSender = arrow.ArrowSender(door, self._keys, key, self.config, self._clock, encoder, callback)
        return sender

    def _pieces(self, key: StreamKey, logs: Iterable[Log]) -> Iterator[Piece]:
        """Encode logs as they come, and join them into pieces of about a batch.

        :raises InvalidArgumentError: a log that cannot be sent, with its position.
        """
        from ..pipeline.batching.accumulator import Piece  # see _import_stages

        now, nanos = moment_of(self._clock.time())
        most, most_logs = self._cut.piece_bytes, self._cut.piece_count
        records: list[bytes] = []
        size = 0
        for position, log in enumerate(logs):
            try:
                record = encode_log(log, now, nanos, self._fallback)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"log {position} of send_many: {error}") from error
            if records and size + len(record) > most:
                yield Piece(key, b"".join(records), len(records))
                records, size = [], 0
            records.append(record)
            size += len(record)
            if len(records) >= most_logs:
                yield Piece(key, b"".join(records), len(records))
                records, size = [], 0
        if records:
            yield Piece(key, b"".join(records), len(records))

    def put_project_config(self, project: ProjectConfig) -> None:
        """Add a project, or replace its endpoint and credentials, also while its records are in flight.

        Example:

            >>> from loghub import EnvironmentCredentials, ProjectConfig
            >>> endpoint = "https://cn-shanghai.log.aliyuncs.com"
            >>> audit = ProjectConfig("audit", endpoint=endpoint, credentials=EnvironmentCredentials())
            >>> producer.put_project_config(audit)

        :param project: the project to add or to replace.
        :raises InvalidArgumentError: not a ``ProjectConfig``, or the producer's sink takes no projects.
        """
        if not isinstance(project, ProjectConfig):
            raise InvalidArgumentError(
                f"a project must be a ProjectConfig, got {type(project).__qualname__}{_meant_by(project)}"
            )
        self._sink.put_project(project)

    def remove_project_config(self, project: str) -> None:
        """Remove a project: ``send`` then refuses it, and its records in flight fail (``ProjectConfigNotExist``).

        With a channel, its records wait until the project is added again.

        Example:

            >>> producer.remove_project_config("audit")

        :param project: the name of the project; an unknown name is ignored.
        """
        self._sink.remove_project(project)
        self._keys.forget()

    def flush(self, timeout: float | None = None) -> None:
        """Send all open batches, then wait until everything accepted before is completed and its callbacks have run.

        With a channel this includes every event in it, recovered events as well.

        Example:

            >>> producer.flush(timeout=10)

        :param timeout: seconds; None to wait as long as the retries take.
        :raises FlushTimeoutError: the timeout has passed; the deliveries continue.
        :raises ProducerError: the call would wait for itself. It was made in a callback, a sink, a channel, a retry
            strategy or a credentials provider on a thread of the producer. Or it was made in a signal handler that
            interrupted a call of this package, which holds a lock that ``flush`` needs.
        """
        check_timeout(timeout)
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.flush(timeout)

    async def aflush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # deliveries go on
        """Do what :meth:`flush` does without blocking the event loop; cancelling the awaiting task ends the wait.

        Example:

            >>> import asyncio
            >>> asyncio.run(producer.aflush(timeout=10))

        :param timeout: seconds; None to wait as long as the retries take.
        :raises FlushTimeoutError: the timeout has passed; the deliveries continue.
        :raises ProducerError: as :meth:`flush`.
        """
        check_timeout(timeout)
        pipeline = self._pipeline
        if pipeline is None:
            return
        stop = Stop(self._clock)
        deadline = Deadline.after(self._clock, timeout, stop)
        try:
            await on_a_thread(partial(pipeline.flush_until, deadline, timeout), f"{self.name}-aflush")
        finally:
            stop.set()

    async def aclose(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # one budget for all stages
        """Do what :meth:`close` does without blocking the event loop; it continues if the awaiting task is cancelled.

        Example:

            >>> import asyncio
            >>> asyncio.run(producer.aclose(timeout=30))

        :param timeout: seconds, for everything; None for the configuration's ``drain_timeout_ms``, and no limit for
            callbacks.
        :raises CloseTimeoutError: as :meth:`close`.
        :raises ProducerError: as :meth:`close`.
        """
        await on_a_thread(partial(self.close, timeout), f"{self.name}-aclose")

    def close(self, timeout: float | None = None) -> None:
        """Shut down gracefully: reject sends, drain the batches, then stop the threads.

        For the first half of the time, failed batches are retried as usual. Then every batch that waits for a retry
        gets one last attempt at once. ``close`` waits for deliveries and callbacks. It may be called any number of
        times, from any thread, also in a callback.

        Without ``timeout`` the drain ends ``drain_timeout_ms`` after the last acknowledgement. Attempts still in flight
        are then cut off, and the remaining records fail with code ``ProducerClosed``. Records of such an attempt may
        have been stored (``may_have_been_stored``). The log gives their number.

        With a channel, records that were not delivered stay there for the next producer on it. Their futures fail with
        code ``LeftInChannel``, and the log and :meth:`stats` give their number. The channels are closed last.

        Example:

            >>> producer.close(timeout=30)
            >>> producer.closed
            True

        :param timeout: seconds, for everything, callbacks included; None for ``drain_timeout_ms``, and no limit for
            callbacks.
        :raises CloseTimeoutError: ``timeout`` has passed; the remaining records failed with code ``ProducerClosed``.
        :raises ProducerError: the call would wait for itself: a sink, a channel, a retry strategy or a credentials
            provider made it on a thread of the producer.

        An error raised by the sink's ``close`` is raised once, after all else is closed, by the call that closed the
        sink.
        """
        check_timeout(timeout)
        with self._lock:
            unused = self._shutdown is None and not self._closed
            self._closed = True
            shutdown = self._shutdown
        if unused:
            self._sink.close()
        if shutdown is not None:
            try:
                shutdown.close(timeout)
            finally:  # An interrupted close leaves the rest to the exit of the interpreter.
                if shutdown.ended:
                    at_exit.drained(shutdown)

    def _note_dropped(self, reason: str) -> None:
        self._counters.add(DROPPED + reason, 1)

    def _report_losses(self) -> None:
        self._losses.write()

    @staticmethod
    def install_signal_handlers() -> None:
        """Call :func:`producer.install_signal_handlers`, which drains all producers of the process.

        Example:

            >>> Producer.install_signal_handlers()

        :raises InvalidArgumentError: not called on the main thread.
        """
        at_exit.install_signal_handlers()

    def _leave_at_exit(self) -> None:
        """Exclude this producer from the drain at exit: its owner has stored all records elsewhere."""
        with self._lock:
            shutdown = self._shutdown
        if shutdown is not None:
            at_exit.drained(shutdown)

    @property
    def closed(self) -> bool:
        """True if :meth:`close` was called, or a signal has drained the producer: ``send`` raises then."""
        shutdown = self._shutdown
        return self._closed or (shutdown is not None and shutdown.begun)

    def check(self, project: str, logstore: str | None = None, *, timeout: float = 10.0) -> str:
        """Ask LogHub whether logs would be accepted: one signed request, which changes nothing.

        Example:

            >>> print(producer.check("my-project", "app-log", timeout=5))
            RecordingSink has no remote endpoint to check: logs for my-project go where it writes

        :param project: the name of a project of this producer.
        :param logstore: the logstore to check; None to check only the project.
        :param timeout: seconds, name resolution included.
        :returns: the finding, as a sentence. A key that may write but not read metadata is no error, and the sentence
            says so.
        :raises TargetError: the fault, as a sentence: no connection, a wrong key, a wrong secret, no such project or
            logstore, a clock that differs, https to an http server, or a wrong region for signature version 4.
        :raises InvalidArgumentError: an unknown project, an invalid logstore name or an invalid timeout.
        """
        if not is_duration(timeout):
            raise InvalidArgumentError(f"timeout: must be seconds, at least 0, got {described(timeout)}")
        self._keys.key(project, logstore or "a", "", "", None)
        from .check import in_time  # most programs never call check

        return in_time(partial(self._sink.probe, project, logstore, timeout), timeout, f"{self.name}-check")

    async def acheck(
        self,
        project: str,
        logstore: str | None = None,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109  # of the request, which no cancellation ends
    ) -> str:
        """Do what :meth:`check` does without blocking the event loop.

        Example:

            >>> import asyncio
            >>> finding = asyncio.run(producer.acheck("my-project", "app-log"))

        :param project: as :meth:`check`.
        :param logstore: as :meth:`check`.
        :param timeout: seconds, name resolution included.
        :returns: the finding, as a sentence.
        :raises TargetError: as :meth:`check`.
        """
        return await on_a_thread(partial(self.check, project, logstore, timeout=timeout), f"{self.name}-acheck")

    def stats(self) -> Stats:
        """Return the producer's counters, and its memory and batches at this moment.

        Example:

            >>> producer.stats().memory_limit
            104857600
        """
        pipeline = self._pipeline
        if pipeline is None:
            dropped, endpoints = self._counters.under(DROPPED), self._sink.endpoints()
            return Stats(memory_limit=self.config.total_size_in_bytes, dropped=dropped, endpoints=endpoints, twin=TWIN)
        return pipeline.stats()

    def _make_pipeline(self) -> Sender:
        """Return the pipeline; make it first if there is none.

        The lock is not held meanwhile: the constructor calls the channel, which may be user code. Of several pipelines
        made at the same time, one is kept; the others were never started.
        """
        if self._closed:
            raise ProducerClosedError("the producer is closed")
        pipeline, shutdown = self._new_pipeline()
        with self._lock:
            if self._pipeline is not None:
                return self._pipeline
            if self._closed:
                raise ProducerClosedError("the producer is closed")
            self._pipeline, self._shutdown = pipeline, shutdown
        return pipeline

    def _new_pipeline(self) -> tuple[Sender, Shutdown]:
        from ..pipeline.pipeline import Pipeline  # see _import_stages
        from ..pipeline.shutdown import Shutdown
        from .pipeline_owner import PipelineOwner

        owner = PipelineOwner(self, self.name, self._losses, self.config.drain_timeout_ms / 1000)
        parts = (self.config, self._sink, self._clock, self.name)
        if self._channel is None:
            pipeline = Pipeline(*parts, owner=owner, counters=self._counters, fallback=self._leftovers)
            return owner.owns(pipeline, Shutdown(pipeline))
        from ..durable.pipeline import DurablePipeline
        from ..durable.shutdown import DurableCloser

        channels = self._channel, self._dead_letter
        durable = DurablePipeline(*parts, *channels, owner=owner, counters=self._counters)
        return owner.owns(durable, Shutdown(durable.pipeline, DurableCloser(durable)))

    def _renew_in_child(self) -> None:
        """Start empty in a forked child; called by the fork hook."""
        abandoned, self._pipeline, self._shutdown = self._pipeline, None, None
        self._waiting = WaitingThreads(f"{self.name}-asend", 1 if self._channel is None else _STORING_THREADS)
        self._lock = Lock()
        self._counters = Counters()
        self._losses = LossReport(self.name, self._counters, muted=self._losses.muted)
        if abandoned is not None:
            abandoned.abandon_in_child()

    if not TYPE_CHECKING:  # else mypy accepts any misspelt name

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the method that was probably meant."""
            # With ``name`` given, Python suggests no private name of its own.
            raise AttributeError(meant_method(name, [known for known in dir(Producer) if known[0] != "_"]), name=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        channels = self._channel, self._dead_letter
        # A given sink is pickled with its projects.
        projects, sink = ((), self._sink) if self._sink_given else (self._sink.project_configs(), None)
        return _rebuild, (projects, self.config, sink, *channels, self._fallback_option)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        projects = [config.project for config in self._sink.project_configs()]
        return f"<Producer {self.name} {state}, projects: {', '.join(projects) or 'none'}>"


def _unknown_option(name: str) -> ConfigError:
    """Build the error for an unknown argument of ``Producer``."""
    known = producer_options()
    if name in known:
        rule = f"is a field of the configuration: say config=ProducerConfig({name}=...)"
        return ConfigError(name, rule, f"{name}=")
    words = hint(name, known)
    if words.startswith("it is said to "):  # the hint names the place of the option, but not the syntax
        return ConfigError(name, f"{words}, as in Producer(ProjectConfig(...), config=ProducerConfig(...))", f"{name}=")
    return ConfigError(name, f"unknown option; options are fields of config=ProducerConfig(...): {words}", name)


def _meant_by(given: object) -> str:
    """Return a hint for an argument that is not a project."""
    if callable(getattr(given, "transaction", None)):
        return "; a channel is given by name: Producer(project, channel=...)"
    if isinstance(given, ProducerConfig):
        return "; options are given by name: Producer(project, config=ProducerConfig(...))"
    if isinstance(given, Mapping):
        return "; options are given as config=ProducerConfig.from_mapping(...), where to as ProjectConfig(...)"
    return "; such as ProjectConfig('my-project', endpoint=..., credentials=...)"


def _import_stages(*, durable: bool) -> None:
    """Import the modules that send.

    Not at ``import producer``: a program may import it only for its errors. At the first producer: then no record waits
    for an import, no lock is held meanwhile, and forked workers share the modules.
    """
    import_module("producer.pipeline.pipeline")
    import_module("producer.pipeline.shutdown")
    import_module("producer.client.pipeline_owner")
    use_compiled_send()
    if durable:
        import_module("producer.durable.pipeline")
        import_module("producer.durable.shutdown")


def _loghub_sink(config: ProducerConfig, clock: Clock, name: str) -> Sink:
    from ..sinks.loghub.sink import LogHubSink  # HTTP is a large import, unneeded with another sink

    return LogHubSink(config, clock, name)


def _rebuild(
    projects: tuple[ProjectConfig, ...],
    config: ProducerConfig,
    sink: Sink | None,
    channel: Channel | None = None,
    dead_letter: Channel | None = None,
    fallback: FallbackOption | None = None,
) -> Producer:
    return Producer(*projects, config=config, sink=sink, channel=channel, dead_letter=dead_letter, fallback=fallback)


def _made_of(fallback: FallbackOption, channel: Channel | None) -> Fallback:
    """Return the fallback for the pipeline.

    :raises ConfigError: it is invalid, or there is a channel.
    """
    if channel is not None:
        rule = "must be None with a channel: dead_letter=... keeps the records that it cannot deliver"
        raise ConfigError("fallback", rule, fallback)
    from .fallback import made_of  # most programs have no fallback

    return made_of(fallback)
