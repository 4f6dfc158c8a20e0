"""Pulls a logstore, shard by shard.

How far a shard was read lies in the channel's own commit, as a file's position does: the number of the LogGroup behind
the last one. So nothing is lost and nothing is put twice into a file channel, whenever the process dies. LogHub's
consumer groups, whose checkpoints would lie beside that, are not used: agents that share the work each name their
``shards``.

The body of an event is the field ``field``, and the other fields are its headers; a log without such a field comes as
one object of JSON. ``timestamp`` is its time in milliseconds; topic and source of the LogGroup come as ``__topic__``
and ``__source__``, and its tags as ``__tag__:NAME``.

Source: LogHub protocol, Reading back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...clock import Clock
from ...config import ProducerConfig
from ...errors import ConfigError, ProducerError
from ...sinks.http.transport import Answer, target_of
from ...spark.signed_client import Question, SignedClient
from ...wire.compression import decompress
from ...wire.cursors import cursor_at, position_of
from ...wire.read_log_group import Fields, read_groups
from ..batch import EventBatch, Position
from ..interfaces import Context, Outlet, Stop
from ..options import option
from ..protocols.loghub import LogstoreOptions

_log = logging.getLogger("producer.agent.source.loghub")

#: Bytes of bodies of a batch, about; it ends with a LogGroup.
_BATCH_BYTES = 1 << 20
#: Seconds between two looks for new shards.
_SHARDS_INTERVAL = 60.0
_PROTOBUF = {"Accept": "application/x-protobuf"}
_NAMES = {name: name for name in ("project", "logstore", "endpoint", "access_key_id")}


class CursorError(ProducerError):
    """A cursor of a kind that cannot be kept as a position."""


class LogHubSource:
    """See the module."""

    endless = True

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(LogstoreOptions):
        """Which logstore, and from where on."""

        start: str = option("begin", doc='where the first start begins: "begin", "end", or a time, as in ISO 8601')
        shards: tuple[int, ...] = option((), doc="only these; empty for all, also those of a split")
        field: str = option("content", doc="the field that becomes the body")
        poll_delay: float = option(1.0, least=0.01, doc="seconds between two looks when there is nothing new")
        groups: int = option(100, least=1, most=1000, doc="LogGroups of a request, at most")
        retries: int = option(3, least=0, doc="further attempts of a request, before the source is run again")

        def __post_init__(self) -> None:
            self.account()
            self.config()
            self.first()

        def config(self) -> ProducerConfig:
            """Of requests.

            :raises ConfigError: something is wrong with it.
            """
            return ProducerConfig(retries=self.retries, sign_version=self.sign_version, region=self.region)

        def first(self) -> str:
            """From where the first cursor is asked for.

            :raises ConfigError: it is no time.
            """
            if self.start in ("begin", "end"):
                return self.start
            try:
                return str(int(datetime.fromisoformat(self.start).astimezone().timestamp()))
            except ValueError as error:
                rule = 'must be "begin", "end", or a time such as 2026-01-31T08:00:00+08:00'
                raise ConfigError("start", rule, self.start) from error

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context = options, context

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`.

        :raises LogHubReadError: LogHub does not say what it holds.
        """
        with Logstore(self._options, self._context.clock) as logstore:
            pulling = _Pulling(self._options, logstore, outlet, stop, self._context.clock)
            while not stop.is_set():
                if not pulling.look():
                    stop.wait(self._options.poll_delay)


class Logstore:
    """What is asked of LogHub; a context manager."""

    def __init__(self, options: LogHubSource.Options, clock: Clock) -> None:
        account = options.account()
        self._path = f"/logstores/{options.logstore}/shards"
        self._client = SignedClient(
            account,
            target_of(account.project, account.endpoint),
            f"{options.project}/{options.logstore} at {options.endpoint}",
            names=_NAMES,
            config=options.config(),
            clock=clock,
        )

    def __enter__(self) -> Logstore:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def shards(self) -> list[int]:
        """Their numbers, also of those that are only read any more."""
        return self._client.json(
            "ListShards", Question(self._path), lambda answer: sorted(int(each["shardID"]) for each in answer)
        )

    def number(self, shard: int, start: str) -> int:
        """The number of the first LogGroup that came at ``start`` or later.

        :raises CursorError: a cursor is none.
        """
        asked = {"type": "cursor", "from": start}
        question = Question(f"{self._path}/{shard}", asked)
        return _number(self._client.json(f"GetCursor of shard {shard}", question, lambda answer: answer["cursor"]))

    def pull(self, shard: int, number: int, count: int) -> tuple[Sequence[Sequence[Fields]], int]:
        """The logs of each LogGroup from there on, and the number of the one behind.

        :raises CursorError: a cursor is none.
        """
        asked = {"type": "log", "cursor": cursor_at(number), "count": str(count)}
        question = Question(f"{self._path}/{shard}", asked, headers=_PROTOBUF)
        groups, following = self._client.ask(f"PullLogs of shard {shard}", question, _pulled)
        return groups, _number(following)


def _pulled(answer: Answer, headers: Mapping[str, str]) -> tuple[list[list[Fields]], str]:
    size = int(headers.get("x-log-bodyrawsize", len(answer.body)))
    body = decompress(answer.body, headers.get("x-log-compresstype", "none"), size)
    return [list(group) for group in read_groups(body)], headers["x-log-cursor"]


def _number(cursor: str) -> int:
    number = position_of(cursor)
    if number is None:
        raise CursorError(f"the cursor {cursor!r} is no number, and cannot be kept as a position")
    return number


class _Pulling:
    """One run of the source.

    :ivar _next: of each shard the number of the next LogGroup.
    :ivar _stops: of each shard where batches have to end, since a channel has it up to there.
    """

    def __init__(
        self, options: LogHubSource.Options, logstore: Logstore, outlet: Outlet, stop: Stop, clock: Clock
    ) -> None:
        self._options, self._logstore, self._outlet, self._stop = options, logstore, outlet, stop
        self._clock = clock
        self._next: dict[int, int] = {}
        self._stops: dict[int, list[int]] = {}
        self._start = "begin" if outlet.names() else options.first()
        self._next_shards = clock.monotonic()

    def look(self) -> bool:
        """Pull each shard once, and put what is new; whether there was anything."""
        if self._clock.monotonic() >= self._next_shards:
            self._find_shards()
            self._next_shards = self._clock.monotonic() + _SHARDS_INTERVAL
        moved = False
        for shard in self._next:
            if self._stop.is_set():
                break
            moved = self._advance(shard) or moved
        return moved

    def _find_shards(self) -> None:
        for shard in self._options.shards or self._logstore.shards():
            if shard not in self._next:
                self._begin(shard)
        self._start = "begin"  # of a shard that comes later nothing was passed over

    def _begin(self, shard: int) -> None:
        """Go on where the channels are. A position is one more than a number: 0 is that of who has nothing."""
        ends = self._outlet.ends(_name(shard))
        if not ends[0]:
            number = self._logstore.number(shard, self._start)
            self._outlet.pass_over(Position(_name(shard), number + 1))
            ends = self._outlet.ends(_name(shard))
        self._next[shard] = ends[0] - 1
        self._stops[shard] = [end - 1 for end in ends[1:]]

    def _advance(self, shard: int) -> bool:
        """Put what a shard has; whether it had anything."""
        number = self._next[shard]
        groups, following = self._logstore.pull(shard, number, self._options.groups)
        if following - number != len(groups):  # whose LogGroups it passed over, nobody knows
            parts = [([log for group in groups for log in group], following)]
        else:
            parts = list(self._parts(groups, number, self._stops[shard]))
        for logs, end in parts:
            if logs and not self._outlet.put_until(self._batch(logs, Position(_name(shard), end + 1)), self._stop):
                return False
            self._next[shard] = end
        return following != number

    @staticmethod
    def _parts(
        groups: Sequence[Sequence[Fields]], number: int, stops: Sequence[int]
    ) -> Iterator[tuple[list[Fields], int]]:
        """Logs of whole LogGroups, about as many as a batch has, and the number behind them."""
        logs: list[Fields] = []
        size = 0
        for end, group in enumerate(groups, number + 1):
            logs += group
            size += sum(len(text) for log in group for text in log.values())
            if size >= _BATCH_BYTES or end in stops or end == number + len(groups):
                yield logs, end
                logs, size = [], 0

    def _batch(self, logs: Sequence[Fields], position: Position) -> EventBatch:
        return EventBatch.of_events([self._event(dict(log)) for log in logs], position)

    def _event(self, log: Fields) -> tuple[dict[str, str], bytes]:
        seconds, nanos = log.pop("__time__", "0"), log.pop("__time_ns_part__", "0")
        meta = {name: log.pop(name) for name in list(log) if name.startswith(("__topic__", "__source__", "__tag__:"))}
        headers = {name: value for name, value in meta.items() if value}
        headers["timestamp"] = str(int(seconds) * 1000 + int(nanos) // 1_000_000)
        body = log.pop(self._options.field, None)
        if body is None:
            return headers, json.dumps(log, ensure_ascii=False).encode(errors="surrogatepass")
        if "timestamp" in log:  # both are kept
            log["field_timestamp"] = log.pop("timestamp")
        return {**log, **headers}, body.encode(errors="surrogatepass")


def _name(shard: int) -> str:
    return f"shard-{shard}"
