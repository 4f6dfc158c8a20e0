"""Bucket: tasks from listings of a bucket that begin at a marker."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ....runtime.loggers import get_logger
from ....runtime.whole_file import write_whole
from ...events.batch import Position
from ...events.interfaces import Context, Outlet
from .clients import DeniedError, FailedError, S3Error, translated
from .feeds import MOST_UNSAFE, Task
from .notifications import ObjectRef
from .objects import WHOLE, name_of
from .options import S3Options
from .reader import Outcome

_log = get_logger("loghub.agent.s3")

#: Seconds between two moves of the marker.
_ROUND = 1.0


@dataclass(slots=True)
class _Listed:
    """An object of the current listing.

    :ivar names: names of the positions that must be safe before the marker moves past the object.
    :ivar done: True once the object needs no more reading.
    """

    key: str
    names: tuple[str, ...]
    done: bool


class Bucket:
    """Feed of the objects of one bucket, in the order of their keys.

    The marker is a key. It moves past an object that is safe in the channels, once ``look_back`` later ones are listed.
    It is stored before the names of earlier objects are forgotten, so a crash repeats no object.

    :param client: the client of S3.
    :ivar _window: the listed objects after the marker.
    :ivar _seen: names in the current listing, also of objects that were replaced meanwhile.
    :ivar _refusal: the last refusal of an object, which ends the run once the other objects are read; the marker does
        not pass that object.
    """

    def __init__(self, client: Any, options: S3Options, context: Context, outlet: Outlet) -> None:
        self._client, self._options, self._context, self._outlet = client, options, context, outlet
        self._keys = options.keys()
        self._file = context.state / "marker.json"
        self._of = {"bucket": options.bucket, "prefix": options.prefix}
        self._marker = self._stored() or options.start_after or ""
        self._window: deque[_Listed] = deque()
        self._tasks: dict[str, _Listed] = {}
        self._seen: set[str] = set()
        self._refusal: S3Error | None = None
        self._next_round = context.clock.monotonic()

    def tasks(self, running: Collection[object]) -> Iterator[Task | None]:
        clock = self._context.clock
        while True:
            yield from self._listing()
            while self._tasks:
                yield None
            if self._refusal is not None:
                raise self._refusal
            self._forget_absent()
            until = clock.monotonic() + self._options.poll_delay
            yield None
            while clock.monotonic() < until:
                yield None

    def _listing(self) -> Iterator[Task | None]:
        """Yield the tasks of one listing."""
        self._move_marker()
        self._window.clear()
        self._seen.clear()
        for listed, ref in self._listed():
            self._seen.update(listed.names)
            self._window.append(listed)
            if not listed.done:
                self._tasks[ref.key] = listed
                yield Task(ref.key, (ref,))
            while len(self._window) >= self._options.look_back + MOST_UNSAFE:
                self._move_marker()
                if len(self._window) >= self._options.look_back + MOST_UNSAFE:
                    if self._refusal is not None and not self._tasks:
                        raise self._refusal
                    yield None

    def _listed(self) -> Iterator[tuple[_Listed, ObjectRef]]:
        """Yield all objects after the marker, page by page."""
        bucket = str(self._options.bucket)
        with translated(f"s3://{bucket}", "s3:ListBucket"):
            more: Mapping[str, str] = {"StartAfter": self._marker}
            while more:
                page = self._client.list_objects_v2(Bucket=bucket, Prefix=self._options.prefix, **more)
                for each in page.get("Contents", ()):
                    key, size = str(each["Key"]), int(each["Size"])
                    name = name_of(bucket, key, each["ETag"], each["LastModified"])
                    done = not size or not self._keys.accepts(key)
                    known = () if done else (name,)
                    done = done or self._outlet.ends(name)[0] >= WHOLE
                    yield _Listed(key, known, done), ObjectRef(bucket, key)
                more = {"ContinuationToken": page["NextContinuationToken"]} if page.get("IsTruncated") else {}

    def done(self, task: Task, outcome: Outcome) -> None:
        listed = self._tasks.pop(task.key)
        self._seen.update(outcome.names)  # an object that was replaced after the listing has another name
        if isinstance(outcome.failure, DeniedError | FailedError):
            self._refusal = outcome.failure
            return
        if outcome.failure is not None:  # a later attempt would fail, too
            for name in {*listed.names, *outcome.names}:
                self._outlet.pass_over(Position(name, WHOLE))
        if outcome.failure is not None or outcome.whole:
            listed.names, listed.done = outcome.names, True

    def maintain(self) -> None:
        now = self._context.clock.monotonic()
        if now >= self._next_round:
            self._next_round = now + _ROUND
            self._move_marker()

    def release(self) -> None:
        self._move_marker()

    def _move_marker(self) -> None:
        """Move the marker past safe objects, and forget their names."""
        passed: list[_Listed] = []
        while len(self._window) > self._options.look_back and self._is_safe(self._window[0]):
            passed.append(self._window.popleft())
        if not passed:
            return
        self._marker = passed[-1].key
        self._file.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({**self._of, "after": self._marker}).encode()
        write_whole(self._file, content, self._file.with_name("marker.new"))
        for name in (name for listed in passed for name in listed.names):
            self._outlet.forget(name)
            self._seen.discard(name)  # a listing may be of millions of objects

    def _is_safe(self, listed: _Listed) -> bool:
        return listed.done and all(self._outlet.safe_end(name) >= WHOLE for name in listed.names)

    def _forget_absent(self) -> None:
        """Forget the names of objects that were deleted or replaced."""
        for name in self._outlet.names() - self._seen:
            if self._outlet.is_safe(name):
                self._outlet.forget(name)

    def _stored(self) -> str | None:
        """Return the stored marker; None if there is none for this bucket and prefix."""
        with suppress(FileNotFoundError, ValueError):
            content = json.loads(self._file.read_bytes())
            if isinstance(content, dict) and content.items() >= self._of.items():
                return str(content["after"])
            _log.warning("source %s: ignored the marker of another bucket or prefix", self._context.name)
        return None
