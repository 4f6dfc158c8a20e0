"""The channels of an agent, made of its configuration: memory, file and spillable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...channels import FileChannel, MemoryChannel, SpillableChannel
from ...channels.file.options import LEAST_SEGMENT
from ...channels.file.store.encryption import FileKeys, check_available
from ...channels.file.store.lost import LostEvent, OnLost
from ...channels.file.store.pointers import MOST_OFFSET
from ...model.errors import ConfigError
from ...model.interfaces import Channel, Event
from ...model.options import option
from ...runtime.loggers import get_logger
from ..events.batch import Position
from ..events.event_format import count_of, position_of
from ..events.interfaces import Context
from ..ledger.number_epochs import kept_origins, new_origins
from ..ledger.ranges import Ranges
from .channel import BatchChannel

_log = get_logger("loghub.agent.channel")

#: Where a channel on the disk lies, in its state.
EVENTS = "events"
#: Seconds between two syncs, at least.
LEAST_INTERVAL = 0.001
#: Our directory in one of Flume's.
_BELOW = "loghub-agent"
#: Of Flume's keys those that change nothing here.
_NEEDLESS = frozenset(
    {
        "backupCheckpointDir",
        "checkpointOnClose",
        "compressBackupCheckpoint",
        "use-fast-replay",
        "use-log-replay-v1",
        "write-timeout",
    }
)
#: Of a spillable channel, likewise, or said otherwise.
_OF_HALVES = frozenset(
    {
        "avgEventSize",
        "byteCapacityBufferPercentage",
        "memoryCapacity",
        "overflowCapacity",
        "overflowDeactivationThreshold",
        "overflowTimeout",
    }
)
_BYTES = "bytes of the events with their headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    capacity: int | None = option(None, least=1, doc="events; empty for no limit but that of the bytes")
    transaction_capacity: int | None = option(
        None, least=1, doc="taken from Flume's files and not needed: a batch is one transaction"
    )
    keep_alive: float = option(3.0, flume="keep-alive", least=0, doc="seconds that a put waits for room")


class MemoryChannelBuilder:
    """Batches in memory; what it holds is read again after a death, by sources that can."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(_Common):
        """Flume's memory channel's."""

        byte_capacity: int = option(64 << 20, least=1, unit="bytes", doc=_BYTES)
        byte_capacity_buffer_percentage: int = option(20, least=0, most=99, doc="of them for headers, per cent")

        def holds(self) -> int:
            """Bytes at most."""
            return self.byte_capacity

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context

    def open(self) -> BatchChannel:
        """The channel, empty."""
        options, context = self._options, self._context
        channel = MemoryChannel(
            byte_capacity=options.byte_capacity,
            admit_larger=True,
            byte_capacity_buffer_percentage=options.byte_capacity_buffer_percentage,
            keep_alive=options.keep_alive,
            name=context.name,
            clock=context.clock,
        )
        return _forgetting(channel, options, context)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnDisk(_Common):
    directory: Path | None = option(None, flume="checkpointDir", doc="its own; by default below the agent's state")
    data_directories: tuple[Path, ...] = option((), flume="dataDirs", doc="where segments go, if elsewhere")
    byte_capacity: int | None = option(None, least=1, unit="bytes", doc=_BYTES)
    fsync: Literal["commit", "os"] | float = option(
        "commit", least=LEAST_INTERVAL, most=86_400, unit="seconds", doc="when a commit is on the disk"
    )
    segment_size: int = option(
        64 << 20, flume="maxFileSize", least=LEAST_SEGMENT, most=MOST_OFFSET, unit="bytes", doc="bytes of a file"
    )
    checkpoint_interval: float = option(30.0, scale=0.001, least=0.001, doc="seconds")
    dual_checkpoints: bool = option(True, flume="useDualCheckpoints", doc="keep a second copy")
    minimum_free_space: int = option(
        64 << 20, flume="minimumRequiredSpace", least=0, unit="bytes", doc="bytes that puts leave free on the disk"
    )
    key_file: Path | None = option(None, doc="JSON with keys, see FileKeys: events are encrypted by AES-256-GCM")

    @staticmethod
    def translate_flume(values: Mapping[str, str]) -> dict[str, str]:
        """Flume's keys; its directories get one of ours below them, since Flume's own files lie there."""
        given = {key: value for key, value in values.items() if key not in _NEEDLESS}
        places = {
            key: re.split(r"[,\s]+", given[key].strip(", ")) for key in ("checkpointDir", "dataDirs") if key in given
        }
        given |= {key: " ".join(f"{path}/{_BELOW}" for path in paths) for key, paths in places.items()}
        if given.pop("fsyncPerTransaction", "true").strip().lower() == "false":
            given["fsync"] = given.pop("fsyncInterval", "5")
        given.pop("fsyncInterval", None)
        return given

    def missing(self) -> Iterator[ConfigError]:
        """What a check of the configuration finds."""
        try:
            self.keys()
        except ConfigError as error:
            yield error

    def keys(self) -> FileKeys | None:
        """Those that events are encrypted with, if they shall be.

        :raises ConfigError: the file holds none, or ``cryptography`` is not installed.
        """
        if self.key_file is None:
            return None
        try:
            check_available()
            return FileKeys(self.key_file)
        except ConfigError as error:
            raise ConfigError("key_file", error.rule, str(self.key_file)) from error


class FileChannelBuilder:
    """Batches on the disk."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(_OnDisk):
        """Flume's file channel's."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context

    def open(self) -> BatchChannel:
        """The channel, with what it held when it was closed, or its process died.

        :raises ChannelError: the directory cannot be used.
        """
        options, context = self._options, self._context
        lost = _Lost()
        channel = _file_channel(options, context, lost)
        counted = Counted(channel.peek(lost.waiting.append), join=True)
        assert channel.notes is not None  # noqa: S101  # only those of tests with a disk of their own have none
        following = channel._next_sequence
        lowest = following if counted.lowest is None else counted.lowest
        return lost.told_to(
            BatchChannel(
                channel,
                context.clock,
                keeps=True,
                capacity=options.capacity,
                keep_alive=options.keep_alive,
                held=counted.events,
                found=counted.found,
                leaves_free=options.minimum_free_space,
                origins=kept_origins(context.name, channel.notes, lowest, following, channel.notes.make_identity()),
            )
        )


class SpillableChannelBuilder:
    """Batches in memory, and on the disk when there are too many; as safe as memory."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(_OnDisk):
        """Flume's spillable memory channel's."""

        byte_capacity: int | None = option(
            None, flume="overflowByteCapacity", least=1, unit="bytes", doc="bytes on the disk"
        )
        memory_bytes: int = option(64 << 20, flume="byteCapacity", least=1, unit="bytes", doc="bytes in memory")

        def holds(self) -> int:
            """Bytes at most."""
            return self.memory_bytes

        @staticmethod
        def translate_flume(values: Mapping[str, str]) -> dict[str, str]:
            """Flume's keys; what it says in events for each half is one number here."""
            halves = [values.get(key, "") for key in ("memoryCapacity", "overflowCapacity")]
            given = {key: value for key, value in values.items() if key not in _OF_HALVES}
            if all(half.strip().isdecimal() for half in halves):
                given["capacity"] = str(sum(map(int, halves)))
            return _OnDisk.translate_flume(given)

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context

    def open(self) -> BatchChannel:
        """The channel, with what had been spilled.

        :raises ChannelError: the directory cannot be used.
        """
        options, context = self._options, self._context
        memory = MemoryChannel(byte_capacity=options.memory_bytes, name=context.name, clock=context.clock)
        lost = _Lost()
        overflow = _file_channel(options, context, lost)
        spilled = overflow.peek(lost.waiting.append)
        channel = SpillableChannel(memory, overflow, name=context.name)
        return lost.told_to(_forgetting(channel, options, context, spilled))


class _Lost:
    """What is damaged of a channel's events: kept until there is somebody who knows what they were.

    :ivar waiting: those that are in the channel, and that a take will find lost.
    """

    def __init__(self) -> None:
        self._found: list[LostEvent] = []
        self._others = 0
        self._channel: BatchChannel | None = None
        self.waiting: list[LostEvent] = []

    def __call__(self, events: Sequence[LostEvent], others: int) -> None:
        if self._channel is None:
            self._found += events
            self._others += others
        else:
            self._channel.lose(events, others)

    def told_to(self, channel: BatchChannel) -> BatchChannel:
        """The channel, which was told, and will be."""
        self._channel = channel
        if self._found or self._others or self.waiting:
            channel.losses.found_at_opening(self._found, self._others, self.waiting)
        return channel


class Counted:
    """What is in a channel when it is opened.

    :param join: True to have neighbours in ``found`` as one.
    :ivar events: those of all batches.
    :ivar lowest: the number of the first batch.
    :ivar found: where the batches were read.
    """

    def __init__(self, events: Iterable[Event], *, join: bool) -> None:
        self.events, self.found = 0, list[Position]()
        self.lowest: int | None = None
        joined: dict[str, Ranges] = {}
        for event in events:
            self.events += count_of(event)
            self.lowest = event.sequence if self.lowest is None else self.lowest
            position = position_of(event)
            if position is not None and join:
                joined.setdefault(position.name, Ranges()).add(position.start, position.end)
            elif position is not None:
                self.found.append(position)
        self.found += [Position(name, end, "", start) for name, ranges in joined.items() for start, end in ranges]


def _file_channel(options: _OnDisk, context: Context, lost: OnLost) -> FileChannel:
    directory = options.directory or context.state / EVENTS
    directory.parent.mkdir(parents=True, exist_ok=True)
    return FileChannel(
        directory,
        byte_capacity=options.byte_capacity,
        admit_larger=True,
        keep_alive=options.keep_alive,
        fsync=options.fsync,
        segment_size=options.segment_size,
        checkpoint_interval=options.checkpoint_interval,
        dual_checkpoints=options.dual_checkpoints,
        minimum_free_space=options.minimum_free_space,
        data_directories=options.data_directories,
        encryption=options.keys(),
        name=context.name,
        lost=lost,
        clock=context.clock,
    )


def _forgetting(channel: Channel, options: _Common, context: Context, spilled: Iterable[Event] = ()) -> BatchChannel:
    """One whose events, and numbers, die with the process, but for those that were spilled."""
    counted = Counted(spilled, join=False)
    return BatchChannel(
        channel,
        context.clock,
        keeps=False,
        capacity=options.capacity,
        keep_alive=options.keep_alive,
        held=counted.events,
        found=counted.found,
        origins=new_origins(),
    )
