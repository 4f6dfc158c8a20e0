"""Push events to Grafana Loki, or to another server with its API.

Events with the same labels are a stream. Labels are fixed, or the values of a few headers, since each combination of
values is a stream of its own. Other headers may become structured metadata.

A time has milliseconds, and the event's place in its batch as nanoseconds. So equal lines of a batch stay apart, and
events that are sent again have the same time: Loki then drops them as duplicates.

Specification: Loki HTTP API, ``POST /loki/api/v1/push``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Clock
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .http_options import RequestOptions
from .http_parts import Part, joined, sample_of
from .http_requests import RequestSink, with_path
from .stamps import STAMP, milliseconds

_PATH = "/loki/api/v1/push"
#: Loki's default maximum number of labels of a stream.
_MOST_LABELS = 15
_ALL = "*"
_NANOSECONDS = 1_000_000


class LokiSink(RequestSink):
    """Sink that pushes events to Grafana Loki."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """The server, and the labels."""

        endpoint: str = option(doc=f"URL of the server; without a path, {_PATH} is added")
        tenant: str | None = option(None, doc="tenant, for X-Scope-OrgID")
        labels: Mapping[str, str] = option({"job": "loghub-agent"}, doc="fixed labels, at least one")
        label_headers: tuple[str, ...] = option(
            (), doc=f"headers that become labels: with labels at most {_MOST_LABELS}"
        )
        metadata: tuple[str, ...] = option((), doc='headers that become structured metadata; "*" for all others')

        def __post_init__(self) -> None:
            RequestOptions.__post_init__(self)
            names = [_name(name) for name in (*self.labels, *self.label_headers)]
            if not all(self.labels.values()) or not self.labels:
                raise ConfigError("labels", "must have a value for at least one label, and no empty one", self.labels)
            if len(names) > _MOST_LABELS or len(set(names)) < len(names):
                raise ConfigError("label_headers", f"must give at most {_MOST_LABELS} labels, each once", names)

    @staticmethod
    def render_sample(options: Options, event: EventBatch, clock: Clock) -> str:
        """Return the body of a request with one event."""
        return sample_of(_Form(options, clock), event)

    def __init__(self, options: Options, context: Context) -> None:
        headers = {"Content-Type": "application/json"}
        if options.tenant is not None:
            headers["X-Scope-OrgID"] = options.tenant
        form = _Form(options, context.clock)
        super().__init__(options, context, form, with_path(options.endpoint, _PATH), headers)


class _Form:
    """Encoding of push requests: an event is ``[time, line, metadata]``."""

    def __init__(self, options: LokiSink.Options, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._fixed = {_name(name): value for name, value in options.labels.items()}

    def encoded(self, batch: EventBatch) -> tuple[bytearray, Sequence[int]]:
        return joined(self._entries(batch, round(self._clock.time() * 1000)))

    def body(self, parts: Sequence[Part]) -> bytes:
        streams: dict[tuple[str | None, ...], bytearray] = {}
        for part in parts:
            for labels, data in self._by_labels(part):
                streams.setdefault(labels, bytearray()).extend(data)
        found = [
            b'{"stream":%b,"values":[%b]}' % (self._labels(values), bytes(entries[:-1]))
            for values, entries in streams.items()
        ]
        return b'{"streams":[%b]}' % b",".join(found)

    def _by_labels(self, part: Part) -> Iterator[tuple[tuple[str | None, ...], bytes | bytearray]]:
        """Yield entries with their values of the label headers."""
        names, batch = self._options.label_headers, part.of.batch
        if batch.columns.keys().isdisjoint(names):
            yield tuple(batch.shared.get(name) for name in names), part.data
            return
        rows = zip(*(batch.values(name)[part.start : part.stop] for name in names), strict=True)
        for number, row in enumerate(rows, part.start):
            yield row, Part(part.of, number, number + 1).data

    def _labels(self, values: Sequence[str | None]) -> bytes:
        names = map(_name, self._options.label_headers)
        own = {name: value for name, value in zip(names, values, strict=True) if value}
        return _encode(self._fixed | own).encode(errors="replace")

    def _entries(self, batch: EventBatch, now: int) -> Iterator[bytes]:
        for number, (headers, body) in enumerate(batch.events()):
            time = milliseconds(headers.get(STAMP), now) * _NANOSECONDS + number % _NANOSECONDS
            line, metadata = _encode(body.decode(errors="replace")), self._metadata(headers)
            yield f'["{time}",{line}{metadata}],'.encode(errors="replace")

    def _metadata(self, headers: Mapping[str, str]) -> str:
        options = self._options
        if _ALL in options.metadata:
            names = [name for name in headers if name not in options.label_headers and name != STAMP]
        else:
            names = [name for name in options.metadata if name in headers]
        return f",{_encode({_name(name): headers[name] for name in names})}" if names else ""


_encode = json.JSONEncoder(ensure_ascii=False).encode


def _name(header: str) -> str:
    """Return a header's name as the name of a label."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", header)
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"
