"""Store events in Elasticsearch or OpenSearch, by bulk requests.

An event is a document with the fields ``@timestamp``, those of its headers, and one for its body. A document is always
created, never replaced, as data streams require.

The answer to a bulk request has a status for each document: those with 429 or 5XX are sent again, other failed ones are
refused. Status 409 says that a document with this ``_id`` exists: with ids, an event that is sent again is stored once.
An id is the value of a header, or made from the number of the event's batch in its channel (:mod:`..ledger`) and its
place in the batch, which stay the same after a crash.

Specification: Elasticsearch Bulk API.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Clock
from ...text.printable import readable
from ..events.batch import EventBatch
from ..events.interfaces import Context, SinkError
from .http_options import RequestOptions
from .http_parts import Outcome, Part, Reason, joined, sample_of
from .http_requests import RequestSink
from .places import Places, Rounding, short
from .stamps import STAMP, milliseconds

#: Parts of the answer to read; it has one item for each document.
_ANSWER = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"
#: Bytes of a header's value in the name of an index, which has at most 255 bytes.
_LONGEST_PART = 100
#: Statuses of stored documents, and of those to send again beside 5XX.
_STORED = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.CONFLICT)
_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
#: Characters that names of indices must not contain.
_UNSAFE = re.compile(r"""[\\/*?"<>| ,#:\x00-\x1f\x7f]""")


class ElasticsearchSink(RequestSink):
    """Sink that stores events in Elasticsearch or OpenSearch; once, with ids."""

    most_answer = 64 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """The server, the index and the form of documents."""

        endpoint: str = option(doc="URL of the server; /_bulk is added")
        index: str = option(doc="index or data stream; may contain %{header}, and times in UTC such as %Y.%m.%d")
        field: str = option("message", least=1, doc="field for the body")
        id_header: str | None = option(None, doc="header with a document's _id")
        number_ids: bool = option(False, doc="make the _id of other documents from the event's number in its channel")
        pipeline: str | None = option(None, doc="ingest pipeline; empty for the index's")
        api_key: str | None = option(None, secret=True, doc="API key: id:key, or both encoded with Base64")

        def __post_init__(self) -> None:
            RequestOptions.__post_init__(self)
            name = self.places().names(EventBatch.of_bodies([b""]), 0)[0]
            if not name or _UNSAFE.search(name) or name[0] in "-_+":
                raise ConfigError("index", "must be a valid name of an index", self.index)
            if self.api_key is not None and (self.token is not None or self.user is not None):
                raise ConfigError("api_key", "must not be given together with token or user", "***")

        def url(self) -> str:
            """Return the URL of bulk requests."""
            parts = urlsplit(self.endpoint)
            pipeline = self.pipeline and f"pipeline={quote(self.pipeline, safe='')}"
            query = "&".join(filter(None, [parts.query, _ANSWER, pipeline]))
            return parts._replace(path=f"{parts.path.rstrip('/')}/_bulk", query=query, fragment="").geturl()

        def own_headers(self) -> dict[str, str]:
            """Return the sink's own headers."""
            made = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
            if self.api_key is not None:
                encoded = b64encode(self.api_key.encode()).decode() if ":" in self.api_key else self.api_key
                made["Authorization"] = f"ApiKey {encoded}"
            return made

        def places(self) -> Places:
            """Return the rule for the names of indices.

            :raises ConfigError: the template has an unknown escape.
            """
            return Places(self.index, UTC, Rounding("", 1), STAMP, safe=_safe, option="index")

    @staticmethod
    def render_sample(options: Options, event: EventBatch, clock: Clock) -> str:
        """Return the body of a request with one event."""
        return sample_of(_Form(options, clock), event)

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, context, _Form(options, context.clock), options.url(), options.own_headers())
        self.numbered = options.number_ids

    def _outcome(self, answer: bytes, count: int) -> Outcome | None:
        reasons: dict[str, Reason] = {}
        refused: dict[int, Reason] = {}
        again: dict[int, Reason] = {}
        for number, status, error in self._failed(answer, count):
            kind = f"{status} {error.get('type')}"
            if kind not in reasons:
                words = self._shown(f"{kind}: {error.get('reason')}")
                reasons[kind] = Reason(kind, f"{self._url} answered for a document {words}")
            (again if status in _LATER or status >= 500 else refused)[number] = reasons[kind]
        why = next((reason.words for reason in again.values()), "")
        return Outcome(refused, again.keys(), f"{len(again)} of {count} documents are sent again: {why}")

    def _failed(self, answer: bytes, count: int) -> list[tuple[int, int, Mapping[str, Any]]]:
        """Return the number, the status and the error of each document that is not stored.

        :raises SinkError: not the answer to a bulk request.
        """
        try:
            said = json.loads(answer)
            items = [next(iter(item.values())) for item in said["items"]] if said["errors"] else []
            if items and len(items) != count:
                raise LookupError(f"{len(items)} items for {count} documents")
            failed = [(number, item) for number, item in enumerate(items) if item["status"] not in _STORED]
            return [(number, int(item["status"]), dict(item.get("error", {}))) for number, item in failed]
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, StopIteration) as error:
            shown = self._shown(answer.decode(errors="replace"))
            raise SinkError(f"{self._url} answered no bulk response ({error!r}): {shown!r}") from error


class _Form:
    """Encoding of bulk requests: two lines of JSON for each document."""

    def __init__(self, options: ElasticsearchSink.Options, clock: Clock) -> None:
        self._options, self._places, self._clock = options, options.places(), clock

    def encoded(self, batch: EventBatch) -> tuple[bytearray, Sequence[int]]:
        return joined(self._documents(batch, round(self._clock.time() * 1000)))

    def body(self, parts: Sequence[Part]) -> bytes:
        return b"".join([part.data for part in parts])

    def _documents(self, batch: EventBatch, now: int) -> Iterator[bytes]:
        options = self._options
        places, names = self._places.names(batch, now), {name: _field(name) for name in (*batch.shared, *batch.columns)}
        for number, (headers, body) in enumerate(batch.events()):
            own = self._id(batch, number, headers)
            stamp = _stamp(milliseconds(headers.pop(STAMP, None), now))
            fields = {names[name]: value for name, value in headers.items()}
            document = {**fields, "@timestamp": stamp, options.field: body.decode(errors="replace")}
            lines = f"{_action(places[number].lower(), own)}\n{_encode(document)}\n"
            yield lines.encode(errors="replace")

    def _id(self, batch: EventBatch, number: int, headers: Mapping[str, str]) -> str | None:
        own = headers.get(self._options.id_header) if self._options.id_header is not None else None
        if own or not self._options.number_ids or batch.origin is None or batch.sequence is None:
            return own or None
        return f"{batch.origin}-{batch.sequence}-{number}"


_encode = json.JSONEncoder(ensure_ascii=False).encode


def _action(index: str, own: str | None) -> str:
    of_id = "" if own is None else f', "_id": {_encode(own)}'
    return f'{{"create": {{"_index": {_encode(index)}{of_id}}}}}'


@lru_cache(maxsize=100)  # events of a batch often have the same time
def _stamp(time: int) -> str:
    """Return milliseconds since the epoch as an ISO date."""
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _safe(value: str | None) -> str:
    """Return a header's value as a part of an index's name."""
    return short(_UNSAFE.sub("_", readable(value or "").lower()).lstrip("-_+."), _LONGEST_PART) or "none"


def _field(name: str) -> str:
    """Return a header's name as the name of a field: the server refuses dots that separate nothing."""
    return name if all(map(str.strip, name.split("."))) else name.replace(".", "_").strip() or "_"
