"""StreamKeys: makes the keys of streams from the arguments of ``send``."""

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
#: The maximum bytes that the names of a stream may have: they are sent and kept with every batch.
MAX_NAMES_SIZE = 4 * 1024

Tags = tuple[tuple[str, str], ...]


class StreamKeys:
    """Makes the keys of streams, and caches them: checking the names costs more than a send.

    :param check_project: a function that raises for a project that cannot be sent to; None to accept every project.
    """

    def __init__(self, config: ProducerConfig, check_project: Callable[[str], None] | None = None) -> None:
        self._config = config
        self._check_project = check_project
        self._tags: Tags = tuple(config.log_tags.items())
        self._cached = lru_cache(maxsize=_REMEMBERED)(self._make)

    def forget(self) -> None:
        """Clear the cache: the set of projects has changed."""
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
        """Return the key of a stream.

        :param order: as in the key.
        :raises LogSizeTooLargeError: names and tags of more than :data:`MAX_NAMES_SIZE` bytes.
        :raises InvalidArgumentError: an empty or invalid name, or an invalid shard hash with ``adjust_shard_hash`` off.
        """
        try:
            return self._cached(project, logstore, topic, source, shard_hash, tags, order)
        except TypeError:  # an argument that cannot be hashed is not text: find it
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
        """Return the key of a stream that may be ordered or idempotent, as :meth:`Producer.stream` has it.

        :raises InvalidArgumentError: as :meth:`key`, a flag that is not a boolean, or a shard hash that leaves no room
            for a key.
        """
        if not isinstance(ordered, bool):
            raise InvalidArgumentError(f"ordered: must be True or False, got {described(ordered)}")
        if not isinstance(idempotent, bool | SequenceKey):
            raise InvalidArgumentError(f"idempotent: must be True, False or a SequenceKey, got {described(idempotent)}")
        if idempotent and shard_hash is not None:
            self._check_room_for_key(shard_hash, sequenced=isinstance(idempotent, SequenceKey))
        if isinstance(idempotent, SequenceKey):
            key = self.key(project, logstore, topic, source, shard_hash, tags)
            return key._replace(order=Numbering(idempotent))
        order = IDEMPOTENT if idempotent else ORDERED if ordered else ""
        return self.key(project, logstore, topic, source, shard_hash, tags, order)

    def _check_room_for_key(self, shard_hash: str, *, sequenced: bool) -> None:
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
            if _CONTROL.search(value):  # names appear in log lines
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
        """Return the key of the stream that differs from ``key`` by these names; None keeps the name of ``key``.

        :raises LogSizeTooLargeError: as :meth:`key`.
        :raises InvalidArgumentError: as :meth:`ordered`, about the shard hash.
        """
        if shard_hash is not None and key.order not in ("", ORDERED):
            self._check_room_for_key(shard_hash, sequenced=isinstance(key.order, Numbering))
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
    """Return the tags of ``send`` and ``stream`` as pairs.

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
    """Return ``value`` if it is text. For an enum, or another subclass, return its plain characters.

    :raises InvalidArgumentError: not text, or text that UTF-8 cannot encode.
    """
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name}: must be text, got {described(value)} of type {type(value).__qualname__}")
    try:
        str.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name}: {described(value)} is not valid Unicode: {error}") from error
    return str.__str__(value)
