"""Producer and Stream: the API, which puts the stages together.

``send`` checks and encodes on the caller's thread, and hands one record to the pipeline; everything else happens
behind it. The file is long because each way in, and what it raises, is told where users look for it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
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

if TYPE_CHECKING:
    from ..model.interfaces import Channel, Sink
    from ..pipeline.batching.accumulator import Piece
    from ..pipeline.batching.open_records import OpenRecords
    from ..pipeline.sender import Sender
    from ..pipeline.shutdown import Shutdown
    from .arrow import ArrowSender

_numbers = itertools.count()
#: How many records are stored in a channel at the same time for coroutines.
_STORING_THREADS = 4
_OPTIONS = frozenset({"config", "channel", "dead_letter", "sink", "clock"})


class Producer:
    """Sends logs in the background: batches by stream, bounded memory, retries, a result for every record.

    Threads start at the first ``send``; with a channel at once, to deliver what it holds. Use it as a context manager,
    or call :meth:`close`. All methods are thread-safe; a forked child may go on using it (it starts empty there), and
    pickling carries its configuration only.

    With a channel, ``send`` stores the record in it, and returns when it is as safe as the channel makes it. What the
    channel holds is delivered at least once, in order for each stream, by this producer or by the next one on the same
    channel; of each stream one batch is on its way at a time. What may still be delivered is tried for ever, or for
    ``delivery_timeout_ms``.

    :param projects: where records may go; more can be added with :meth:`put_project_config`.
    :param config: the options; None is all defaults.
    :param channel: where records wait until they are delivered; None keeps them in memory only. It is the producer's
        from now on, which closes it.
    :param dead_letter: a channel for records that cannot be delivered, with the reason in their headers; likewise the
        producer's. None only tells callbacks, counters and the log of them.
    :param sink: delivers batches in place of LogHub: a file (see ``producer.sinks``), a double for tests (see
        ``producer.testing``), or one of your own.
    :param clock: the source of time, for tests.
    :raises ConfigError: a project is given twice; what is no channel; a dead letter channel without a channel, or the
        same one.
    :raises ChannelClosedError: the channel is closed.
    """

    def __new__(cls, *_: object, **options: object) -> Self:
        """Say which option is meant, of those that are known from elsewhere."""
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
        if sink is not None and (isinstance(sink, type) or not isinstance(sink, Sink)):
            raise ConfigError("sink", "must be None or inherit from producer.Sink", sink)
        self._clock: Clock = clock or SystemClock()
        self._counters = Counters()
        self._losses = LossReport(self.name, self._counters)
        self._sink = _loghub_sink(self.config, self._clock, self.name) if sink is None else sink
        self._sink_given = sink is not None
        self._cut = CutRule.of(self.config)
        # Behind a channel records wait for a project that comes late.
        self._keys = StreamKeys(self.config, self._sink.check_project if channel is None else None)
        self._fallback = fallback_of(self.config.default, self.config.on_unencodable)
        # Behind a channel several commits may share a sync.
        self._waiting = WaitingThreads(f"{self.name}-asend", 1 if channel is None else _STORING_THREADS)
        self._closed = False
        self._lock = threading.Lock()  # guards _pipeline, _shutdown and _closed
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
        """Accept one log, or a list of logs that travel together; returns as soon as there is memory for it.

        :param log: a mapping of field names to values, a :class:`~producer.LogItem`, or a list of these, which
            goes into one batch or is refused. Later changes to these objects change nothing.
        :param topic: the LogGroup's topic; None is an empty one.
        :param source: the LogGroup's source; None is that of the configuration.
        :param shard_hash: records with equal hashes go to the same shard; None balances the load.
        :param tags: tags of the LogGroup besides those of the configuration.
        :param callback: called once with the :class:`~producer.Result`, on a handler thread.
        :param urgent: send it at once, with what waits in its stream, instead of after ``linger_ms``; behind a channel
            only what has left the channel.
        :returns: the future of the result.
        :raises InvalidArgumentError: an unknown project, a malformed logstore name, a field name that is not text, a
            value that cannot be sent, an argument that must be given by name.
        :raises LogSizeTooLargeError: larger than a batch (8 MiB) or than ``total_size_in_bytes``.
        :raises MaxBatchCountExceedError: a list of more than 40,960 logs.
        :raises SendTimeoutError: no memory, or no room in the channel, within ``max_block_ms``.
        :raises ProducerClosedError: after :meth:`close` began.
        :raises ChannelError: the channel could not store it, such as for want of space on its disk.
        """
        if more:
            raise InvalidArgumentError(by_name("send takes a project, a logstore and a log", "topic=...", more))
        key = self._keys.key(project, logstore, topic, source, shard_hash, pairs_of(tags) if tags is not None else ())
        future = self._send(key, log, callback)
        if urgent and (pipeline := self._pipeline) is not None:
            pipeline.hand_on_stream(key)
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
        """A handle bound to one stream: the fast path for many sends to the same place.

        :param tags: tags of the LogGroup besides those of the configuration.
        :param ordered: records arrive in the order of ``send``: one batch of the stream is in flight at a time. One
            that fails for good stops the stream, until :meth:`Stream.resume`.
        :param idempotent: ``ordered``, and the server stores each batch once, whatever is lost on the way: batches
            carry a random key and a number. With a :class:`~producer.SequenceKey` the caller owns both: each ``send``,
            and each piece of ``send_many``, is a batch of its own, never cut, with the next number.
        :param max_block_ms: how long ``send`` of this handle waits for memory, or for room in the channel,
            milliseconds: 0 does not wait, negative waits for ever; None is the configuration's.
        :raises InvalidArgumentError: as :meth:`send`; ``idempotent`` with a ``shard_hash`` that leaves no room for a
            key; a ``max_block_ms`` that is no integer.
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

    def _send(self, key: StreamKey, log: Log | Sequence[Log], callback: Callback | None) -> SendFuture:
        if callback is not None:
            _check_callback(callback)
        pipeline = self._pipeline or self._make_pipeline()
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
            return pipeline.admission.accept(key, record, logs, callback)
        except ProducerClosedError:
            at_exit.wait_for_signal()
            raise

    async def _asend(self, stream: Stream, log: Log | Sequence[Log], callback: Callback | None) -> SendFuture:
        """See :meth:`Stream.asend`."""
        from asyncio import wrap_future  # most programs have no loop, and asyncio is large

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
        """Where the next log of a send's stream may go; None if there is no such place."""
        pipeline = self._pipeline
        return None if pipeline is None else pipeline.admission.open_records(future)

    def _send_many(self, key: StreamKey, logs: Iterable[Log], callback: Callback | None) -> list[SendFuture]:
        if callback is not None:
            _check_callback(callback)
        if isinstance(logs, Mapping | LogItem | str) or not isinstance(logs, Iterable):
            kind = type(logs).__qualname__
            raise InvalidArgumentError(f"send_many takes a list of logs or an iterator, got {kind}: send takes one log")
        pipeline = self._pipeline or self._make_pipeline()
        try:
            return pipeline.admission.accept_pieces(self._pieces(key, logs), callback)
        except ProducerClosedError:
            at_exit.wait_for_signal()
            raise

    def _send_lines(
        self, key: StreamKey, block: Any, field: str, time: float | datetime | None, callback: Callback | None
    ) -> list[SendFuture]:
        from .lines import LineSender

        if callback is not None:
            _check_callback(callback)
        pipeline = self._pipeline or self._make_pipeline()
        sender = LineSender(pipeline.admission, key, self._cut, field, time, moment_of(self._clock.time())[0])
        try:
            return sender.send(block, callback)
        except ProducerClosedError:
            at_exit.wait_for_signal()
            raise

    def _arrow_sender(
        self, key: StreamKey, schema: Any, options: Mapping[str, str | None], callback: Callback | None
    ) -> ArrowSender:
        if callback is not None:
            _check_callback(callback)
        arrow = arrow_sending()
        # A schema with metadata, such as that of a pandas.DataFrame, has no hash.
        encoder = arrow.encoder_of(schema.remove_metadata(), tuple(options.items()))
        pipeline = self._pipeline or self._make_pipeline()
        sender: ArrowSender = arrow.ArrowSender(
            pipeline.admission, self._keys, key, self.config, self._clock, encoder, callback
        )
        return sender

    def _pieces(self, key: StreamKey, logs: Iterable[Log]) -> Iterator[Piece]:
        """Logs, encoded and joined into pieces of about a batch each, as they come.

        :raises InvalidArgumentError: a log that cannot be sent; with its position.
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
        """Add a project, or replace its endpoint and credentials, also while records for it are on their way.

        :raises InvalidArgumentError: not a ``ProjectConfig``, or the producer's sink knows no projects.
        """
        if not isinstance(project, ProjectConfig):
            raise InvalidArgumentError(
                f"a project must be a ProjectConfig, got {type(project).__qualname__}{_meant_by(project)}"
            )
        self._sink.put_project(project)

    def remove_project_config(self, project: str) -> None:
        """Forget a project: its records fail from now on (``ProjectConfigNotExist``), and ``send`` refuses more. Behind
        a channel they wait for it. An unknown name is no error.
        """
        self._sink.remove_project(project)
        self._keys.forget()

    def flush(self, timeout: float | None = None) -> None:
        """Send what is batched, and wait until everything accepted before is settled and its callbacks have run.

        With a channel that is everything in it, recovered records included.

        :param timeout: seconds; None waits as long as the retries take.
        :raises FlushTimeoutError: it took longer; the deliveries go on.
        :raises ProducerError: called in a callback, or by a sink, a channel, a strategy for retries or a credentials
            provider, on the producer's thread: it would wait for itself; or by a handler of a signal that has
            interrupted a call of this package on its thread, which holds what would be waited for.
        """
        _check_timeout(timeout)
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.flush(timeout)

    async def aflush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # deliveries go on
        """As :meth:`flush`, without blocking the event loop; ends when the one who awaits it is cancelled."""
        _check_timeout(timeout)
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
        """As :meth:`close`, without blocking the event loop; goes on when the one who awaits it is cancelled."""
        await on_a_thread(partial(self.close, timeout), f"{self.name}-aclose")

    def close(self, timeout: float | None = None) -> None:
        """Shut down gracefully: refuse ``send``, keep retrying for half of the time, give every batch that then waits
        for a retry one last attempt at once, wait for deliveries and callbacks, end the threads. May be called any
        number of times, from any thread, in callbacks too.

        Without ``timeout`` the time ends ``drain_timeout_ms`` after the last acknowledgement. At its end attempts in
        flight are cut off, and what was left fails with code ``ProducerClosed``: records of such an attempt may have
        been stored (``may_have_been_stored``). The log gives their number.

        With a channel, what the retries could not deliver stays there for the next producer on it: its futures fail
        with code ``LeftInChannel``, and the log and :meth:`stats` say how much it is. The channels are closed last.

        :param timeout: seconds, one budget for everything, callbacks included; None waits for callbacks as long as they
            take.
        :raises CloseTimeoutError: ``timeout`` was too short; what was left is failed (code ``ProducerClosed``).
        :raises ProducerError: called by a sink, a channel, a strategy for retries or a credentials provider, on the
            producer's thread: it would wait for itself.

        An error of the sink's ``close`` is raised once, by the call that closed it, after all else is closed.
        """
        _check_timeout(timeout)
        with self._lock:
            unused = self._shutdown is None and not self._closed
            self._closed = True
            shutdown = self._shutdown
        if unused:
            self._sink.close()
        if shutdown is not None:
            try:
                shutdown.close(timeout)
            finally:  # a close that was interrupted leaves the rest to the interpreter's exit
                if shutdown.ended:
                    at_exit.drained(shutdown)

    def _note_dropped(self, reason: str) -> None:
        """Count a log that an integration could not enqueue."""
        self._counters.add(DROPPED + reason, 1)

    def _say_losses(self) -> None:
        """Log what was lost since that was last said."""
        self._losses.say()

    @staticmethod
    def install_signal_handlers() -> None:
        """See :func:`producer.install_signal_handlers`: it is for all producers of the process."""
        at_exit.install_signal_handlers()

    def _leave_at_exit(self) -> None:
        """The exit of the interpreter does not wait for it: whoever owns it has all records elsewhere."""
        with self._lock:
            shutdown = self._shutdown
        if shutdown is not None:
            at_exit.drained(shutdown)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or a signal has drained it: ``send`` raises then."""
        shutdown = self._shutdown
        return self._closed or (shutdown is not None and shutdown.begun)

    def check(self, project: str, logstore: str | None = None, *, timeout: float = 10.0) -> str:
        """Ask LogHub whether logs would arrive: one signed request, which changes nothing.

        :param logstore: to ask for; None asks for the project alone.
        :param timeout: seconds, name resolution included.
        :returns: what was found, in a sentence. A key that may write but not ask is no error, and the sentence says so.
        :raises TargetError: what is wrong, in a sentence: no connection, wrong key, wrong secret, no such project or
            logstore, a clock that differs, https where http is spoken, a wrong region of signature version 4.
        :raises InvalidArgumentError: an unknown project, a malformed logstore name.
        """
        if not _is_duration(timeout):
            raise InvalidArgumentError(f"timeout: must be seconds, at least 0, got {described(timeout)}")
        self._keys.key(project, logstore or "a", "", "", None)
        from .check import in_time  # most programs do not ask

        return in_time(partial(self._sink.probe, project, logstore, timeout), timeout, f"{self.name}-check")

    async def acheck(
        self,
        project: str,
        logstore: str | None = None,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109  # of the request, which no cancellation ends
    ) -> str:
        """As :meth:`check`, without blocking the event loop."""
        return await on_a_thread(partial(self.check, project, logstore, timeout=timeout), f"{self.name}-acheck")

    def stats(self) -> Stats:
        """What the producer has done and holds at this moment."""
        pipeline = self._pipeline
        if pipeline is None:
            dropped = self._counters.under(DROPPED)
            return Stats(memory_limit=self.config.total_size_in_bytes, dropped=dropped, twin=TWIN)
        return pipeline.stats()

    def _make_pipeline(self) -> Sender:
        """The pipeline, made if there is none. Without the lock: a channel, which is asked what it holds, may be
        somebody else's. Of several that are made at the same time the first one stays; no other was started.
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

        owner = PipelineOwner(self, self._losses, self.config.drain_timeout_ms / 1000)
        parts = (self.config, self._sink, self._clock, self.name)
        if self._channel is None:
            pipeline = Pipeline(*parts, owner=owner, counters=self._counters)
            return owner.owns(pipeline, Shutdown(pipeline))
        from ..durable.pipeline import DurablePipeline
        from ..durable.shutdown import DurableCloser

        channels = self._channel, self._dead_letter
        durable = DurablePipeline(*parts, *channels, owner=owner, counters=self._counters)
        closer = DurableCloser(durable)
        return owner.owns(durable, Shutdown(durable.pipeline, closer, threads=durable.working_threads))

    def _renew_in_child(self) -> None:
        """Start empty in a forked child; called by the fork hook."""
        abandoned, self._pipeline, self._shutdown = self._pipeline, None, None
        self._waiting = WaitingThreads(f"{self.name}-asend", 1 if self._channel is None else _STORING_THREADS)
        self._lock = threading.Lock()
        self._counters = Counters()
        self._losses = LossReport(self.name, self._counters, muted=self._losses.muted)
        if abandoned is not None:
            abandoned.abandon_in_child()

    if not TYPE_CHECKING:  # or every misspelt name would pass for a method

        def __getattr__(self, name: str) -> Any:
            """Say where a method is that people look for here."""
            # With its name on it, Python adds no private name that it takes to be meant.
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
        # A given sink brings its projects along.
        projects, sink = ((), self._sink) if self._sink_given else (self._sink.project_configs(), None)
        return _rebuild, (projects, self.config, sink, *channels)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        projects = [config.project for config in self._sink.project_configs()]
        return f"<Producer {self.name} {state}, projects: {', '.join(projects) or 'none'}>"


def _unknown_option(name: str) -> ConfigError:
    """What to say of an argument of ``Producer`` that it does not have."""
    known = producer_options()
    if name in known:
        rule = f"is a field of the configuration: say config=ProducerConfig({name}=...)"
        return ConfigError(name, rule, f"{name}=")
    words = hint(name, known)
    if words.startswith("it is said to "):  # where to, and not how
        return ConfigError(name, f"{words}, as in Producer(ProjectConfig(...), config=ProducerConfig(...))", f"{name}=")
    return ConfigError(name, f"unknown option; options are fields of config=ProducerConfig(...): {words}", name)


def _meant_by(given: object) -> str:
    """What was meant by what is no project."""
    if callable(getattr(given, "transaction", None)):
        return "; a channel is given by name: Producer(project, channel=...)"
    if isinstance(given, ProducerConfig):
        return "; options are given by name: Producer(project, config=ProducerConfig(...))"
    if isinstance(given, Mapping):
        return "; options are given as config=ProducerConfig.from_mapping(...), where to as ProjectConfig(...)"
    return "; such as ProjectConfig('my-project', endpoint=..., credentials=...)"


def _import_stages(*, durable: bool) -> None:
    """Import what sends. Not with the package, which a program may import for its errors alone; but with the first
    producer, so that no record waits for it, no lock is held meanwhile, and forked workers share it.
    """
    import_module("producer.pipeline.pipeline")
    import_module("producer.pipeline.shutdown")
    import_module("producer.client.pipeline_owner")
    use_compiled_send()
    if durable:
        import_module("producer.durable.pipeline")
        import_module("producer.durable.shutdown")


def _loghub_sink(config: ProducerConfig, clock: Clock, name: str) -> Sink:
    from ..sinks.loghub.sink import LogHubSink  # HTTP is much to import for those who use another sink

    return LogHubSink(config, clock, name)


def _rebuild(
    projects: tuple[ProjectConfig, ...],
    config: ProducerConfig,
    sink: Sink | None,
    channel: Channel | None = None,
    dead_letter: Channel | None = None,
) -> Producer:
    return Producer(*projects, config=config, sink=sink, channel=channel, dead_letter=dead_letter)


def _check_callback(callback: object) -> None:
    if not callable(callback):
        raise InvalidArgumentError(f"callback: must be None or callable with one argument, got {described(callback)}")


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and value >= 0


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and not _is_duration(timeout):
        raise InvalidArgumentError(f"timeout: must be None or seconds, at least 0, got {described(timeout)}")
