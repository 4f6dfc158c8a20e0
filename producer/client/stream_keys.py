"""Stream keys from the arguments of ``send``: checked, completed by the configuration, and remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain

from ..model.config import ProducerConfig, host_address
from ..model.errors import InvalidArgumentError, LogSizeTooLargeError
from ..model.records import IDEMPOTENT, ORDERED, StreamKey
from ..model.sequence import Numbering, SequenceKey
from ..text.names import LOGSTORE_RULE, is_logstore_name
from ..text.printable import described
from ..wire.put_logs import adjust_shard_hash

_HASH = re.compile(r"[0-9a-fA-F]{32}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_REMEMBERED = 1024
#: What names a stream travels with every batch of it, and is kept in memory with it, bytes.
MAX_NAMES_SIZE = 4 * 1024

Tags = tuple[tuple[str, str], ...]


class StreamKeys:
    """Makes the key of a stream; the last few thousand are remembered, since checking one costs more than a send.

    :param check_project: raises for a project that nothing can be sent to; None takes all.
    """

    def __init__(self, config: ProducerConfig, check_project: Callable[[str], None] | None = None) -> None:
        self._config = config
        self._check_project = check_project
        self._tags: Tags = tuple(config.log_tags.items())
        self._cached = lru_cache(maxsize=_REMEMBERED)(self._make)

    def forget(self) -> None:
        """Check all names anew: what is known of projects has changed."""
        self._cached.cache_clear()

    def key(
        self,
        project: str,
        logstore: str,
        topic: str | None,
        source: str | None,
        shard_hash: str | None,
        tags: Tags = (),
        order: str = "",
    ) -> StreamKey:
        """The key of a stream.

        :param order: as in the key.

        :raises LogSizeTooLargeError: names and tags of more than :data:`MAX_NAMES_SIZE` bytes.
        :raises InvalidArgumentError: an empty or wrong name; a shard hash that is none, with ``adjust_shard_hash`` off.
        """
        try:
            return self._cached(project, logstore, topic, source, shard_hash, tags, order)
        except TypeError:  # what cannot be hashed is no text: find out which
            return self._make(project, logstore, topic, source, shard_hash, tags, order)

    def ordered(
        self,
        project: str,
        logstore: str,
        topic: str | None,
        source: str | None,
        shard_hash: str | None,
        tags: Tags,
        *,
        ordered: bool,
        idempotent: bool | SequenceKey,
    ) -> StreamKey:
        """The key of a stream that may be ordered or idempotent; see :meth:`Producer.stream`.

        :raises InvalidArgumentError: as :meth:`key`; what is no flag; a shard hash that leaves no room for a key.
        """
        if not isinstance(ordered, bool):
            raise InvalidArgumentError(f"ordered: must be True or False, got {described(ordered)}")
        if not isinstance(idempotent, bool | SequenceKey):
            raise InvalidArgumentError(f"idempotent: must be True, False or a SequenceKey, got {described(idempotent)}")
        if idempotent and shard_hash is not None:
            self._must_leave_room(shard_hash, sequenced=isinstance(idempotent, SequenceKey))
        if isinstance(idempotent, SequenceKey):
            key = self.key(project, logstore, topic, source, shard_hash, tags)
            return key._replace(order=Numbering(idempotent))
        order = IDEMPOTENT if idempotent else ORDERED if ordered else ""
        return self.key(project, logstore, topic, source, shard_hash, tags, order)

    def _must_leave_room(self, shard_hash: str, *, sequenced: bool) -> None:
        if sequenced:
            raise InvalidArgumentError(
                f"shard_hash: a SequenceKey chooses the shard by its key, so leave it out; got {described(shard_hash)}"
            )
        if not self._config.adjust_shard_hash:
            raise InvalidArgumentError(
                f"shard_hash: without adjust_shard_hash all 128 bits of it choose the shard, and idempotent needs free "
                f"ones for a key of its own: turn it on, or give a SequenceKey; got {described(shard_hash)}"
            )

    def _make(
        self,
        project: str,
        logstore: str,
        topic: str | None,
        source: str | None,
        shard_hash: str | None,
        tags: Tags,
        order: str,
    ) -> StreamKey:
        project, logstore = check_text("project", project), check_text("logstore", logstore)
        for name, value in (("project", project), ("logstore", logstore)):
            if not value:
                raise InvalidArgumentError(f"{name}: must not be empty")
            if _CONTROL.search(value):  # it stands in lines of the log, too
                raise InvalidArgumentError(f"{name}: must not have control characters, got {described(value)}")
        if not is_logstore_name(logstore):
            raise InvalidArgumentError(f"logstore: {LOGSTORE_RULE}, got {described(logstore)}")
        if self._check_project is not None:
            self._check_project(project)
        if source is None:
            source = self._config.source if self._config.source is not None else host_address()
        topic, source = check_text("topic", "" if topic is None else topic), check_text("source", source)
        own: Tags = tuple((check_text("tags", name), check_text(f"tags[{name!r}]", value)) for name, value in tags)
        key = StreamKey(project, logstore, topic, source, self._adjusted(shard_hash), self._tags + own, order)
        _check_size(key)
        return key

    def picked(self, key: StreamKey, topic: str | None, source: str | None, shard_hash: str | None) -> StreamKey:
        """The stream that differs from ``key`` by names; None leaves what there is.

        :raises LogSizeTooLargeError: as :meth:`key`.
        :raises InvalidArgumentError: as :meth:`ordered`, about the shard hash.
        """
        if shard_hash is not None and key.order not in ("", ORDERED):
            self._must_leave_room(shard_hash, sequenced=isinstance(key.order, Numbering))
        key = key._replace(
            topic=key.topic if topic is None else topic,
            source=key.source if source is None else source,
            shard_hash=key.shard_hash if shard_hash is None else self._adjusted(shard_hash),
        )
        _check_size(key)
        return key

    def _adjusted(self, shard_hash: str | None) -> str | None:
        if shard_hash is None:
            return None
        shard_hash = check_text("shard_hash", shard_hash)
        if self._config.adjust_shard_hash:
            return adjust_shard_hash(shard_hash, self._config.buckets)
        if not _HASH.fullmatch(shard_hash):
            raise InvalidArgumentError(
                f"shard_hash: without adjust_shard_hash it must be 32 hexadecimal digits, got {described(shard_hash)}"
            )
        return shard_hash


def pairs_of(tags: object) -> Tags:
    """The tags of ``send`` and ``stream`` as pairs.

    :raises InvalidArgumentError: not a mapping.
    """
    if tags is None:
        return ()
    if not isinstance(tags, Mapping):
        raise InvalidArgumentError(
            f"tags: must be None or a mapping of text to text, such as {{'env': 'prod'}}, got {described(tags)}"
        )
    return tuple(tags.items())


def _check_size(key: StreamKey) -> None:
    size = sum(len(text.encode()) for text in (key.project, key.logstore, key.topic, key.source, *chain(*key.tags)))
    if size > MAX_NAMES_SIZE:
        raise LogSizeTooLargeError(size, MAX_NAMES_SIZE, "project, logstore, topic, source and tags together")


def check_text(name: str, value: object) -> str:
    """Return ``value`` if it is text; of an enum or another subclass its true characters.

    :raises InvalidArgumentError: it is no text, or text that UTF-8 cannot hold.
    """
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name}: must be text, got {described(value)} of type {type(value).__qualname__}")
    try:
        str.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name}: {described(value)} is not valid Unicode: {error}") from error
    return str.__str__(value)
