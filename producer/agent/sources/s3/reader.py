"""ObjectReader: puts the lines of objects into the channels, from the first byte that a channel lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from ....runtime.clock import Stop
from ....runtime.locks import Lock
from ....runtime.loggers import get_logger
from ....runtime.rate_limited_log import RateLimitedLog
from ....wire.encodings import in_order
from ...events.batch import Position
from ...events.interfaces import Context, Outlet
from ..reading.batches import text_of
from ..reading.notices import Notices
from .blocks import PlainBytes, blocks_of
from .clients import DeniedError, FailedError, GoneError, S3Error, StoppedError, UnreadableError
from .notifications import ObjectRef
from .objects import WHOLE, ObjectBytes
from .options import S3Options

_log = get_logger("loghub.agent.s3")


class BusyError(S3Error):
    """Raised for an object that another worker is reading."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one task.

    :ivar names: names of the positions of the objects that were opened.
    :ivar whole: True if each object was read to its end, or no longer exists.
    :ivar failure: the error of the last object that could not be read; None if all could be read.
    """

    names: tuple[str, ...]
    whole: bool
    failure: S3Error | None = None


class ObjectReader:
    """Reader of objects; thread-safe.

    :param client: the client of S3.
    :param stop: ends the reading.
    """

    def __init__(self, client: Any, options: S3Options, context: Context, outlet: Outlet, stop: Stop) -> None:
        self._client, self._options, self._context, self._outlet, self._stop = client, options, context, outlet, stop
        self._rules = options.rules()
        self._maker = options.batch_maker()
        self._notices = Notices(_log, context.counters, options.encoding, "encoding")
        self._repeated = RateLimitedLog(context.clock)
        self._lock = Lock()  # guards _claims
        self._claims: set[str] = set()

    def read_all(self, refs: tuple[ObjectRef, ...]) -> Outcome:
        """Put the lines of objects, one object after another. An unreadable object does not stop the others.

        :raises S3Error: S3 cannot be reached.
        """
        names: list[str] = []
        failure: S3Error | None = None
        for ref in refs:
            try:
                if not self._read(ref, names):
                    return Outcome(tuple(names), whole=False)
            except StoppedError:
                return Outcome(tuple(names), whole=False)
            except GoneError as error:
                self.report(error)
                self._context.counters.add(ObjectGoneCount=1)
            except BusyError as error:
                failure = error
            except (UnreadableError, DeniedError, FailedError) as error:
                self.report(error)
                failure = error
        return Outcome(tuple(names), failure is None, failure)

    def report(self, error: Exception) -> None:
        """Count and log a failure."""
        self._context.counters.add(EventReadFail=1)
        self._context.counters.last_error = str(error)
        more = self._repeated.due_error(error)
        if more is not None:
            _log.error("source %s: %s%s", self._context.name, error, more)

    def _read(self, ref: ObjectRef, names: list[str]) -> bool:
        """Put the lines of an object; return False if ``stop`` was set before its end.

        :param names: the list to which the object's name is added.
        """
        with closing(ObjectBytes(self._client, ref, self._stop)) as stream, self._claimed(stream):
            name, ends = stream.name, self._outlet.ends(stream.name)
            names.append(name)
            if ends[0] >= WHOLE:
                return True
            try:
                return self._put_all(stream, name, ends[0], [end for end in ends[1:] if end < WHOLE])
            except GoneError:
                names.remove(name)
                self._outlet.forget(name)
                raise

    def _put_all(self, stream: ObjectBytes, name: str, start: int, stops: list[int]) -> bool:
        plain = PlainBytes(stream, start)
        encoding, headers = in_order(self._options.encoding, plain.head), self._headers(stream)
        key = int(name.rpartition("-")[2][:15], 16), 0
        for block in blocks_of(plain.read, plain.head, self._rules, start, stops):
            self._notices.look(stream.place, key, block)
            text = text_of(block, encoding)
            self._notices.count(stream.place, key, text.replaced)
            if self._stop.is_set():
                return False
            if text.data and not self._outlet.put_until(
                self._maker.batch(block, text.data, headers, name, stream.place), self._stop
            ):
                return False
        self._outlet.pass_over(Position(name, WHOLE, stream.place))
        self._context.counters.add(ObjectReadCount=1)
        return True

    def _headers(self, stream: ObjectBytes) -> Mapping[str, str]:
        known = {
            "bucket": stream.ref.bucket,
            "key": stream.ref.key,
            "etag": stream.etag.strip('"'),
            "size": str(stream.size),
            "last_modified": stream.modified.isoformat(),
        }
        return {header: known[header] for header in self._options.headers}

    @contextmanager
    def _claimed(self, stream: ObjectBytes) -> Iterator[None]:
        """Claim an object for this thread during the block.

        :raises BusyError: another worker reads it.
        """
        name = stream.name
        with self._lock:
            if name in self._claims:
                raise BusyError(f"{stream.place}: another worker is reading it")
            self._claims.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._claims.discard(name)
