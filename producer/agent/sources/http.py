"""Events by POST over HTTP, with TLS or without. Modelled on Flume's ``HTTPSource``.

A request is one batch. 200 means that every required channel has committed it. An invalid body is answered by 400, one
that is too large with 413. While a channel is full, memory is short, or an interceptor fails, the answer is 503 with
``Retry-After``. The option ``format`` says how bodies are parsed:

* ``json``: Flume's, ``[{"headers": {"a": "b"}, "body": "text"}, …]``;
* ``lines``: each line is an event, whether it is JSON or not;
* ``blob``: the body is one event, and the query's parameters are its headers;
* ``batches``: the format that another agent's sink ``http`` sends.

Bodies may be compressed with gzip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ...model.options import option
from ...runtime.clock import Clock
from ..config.flume_keys import without_needless
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..protocols.batches import unpack
from ..protocols.reckoning import OF_LINE, Reckoning
from .http_json import events_of_json
from .http_requests import Request, RequestError, refusing
from .posts import PostSource, RequestOptions

#: Memory of a batch, in events: each batch is committed by itself.
_AS_EVENTS = 50
_FORMATS = ("json", "lines", "blob", "batches")
#: Prefixes of options for Jetty, which Flume's source runs in.
_JETTYS = ("HttpConfiguration.", "QueuedThreadPool.", "ServerConnector.")
_HANDLERS = {"jsonhandler": "json", "blobhandler": "blob"}


class HttpSource(PostSource):
    """Source of events in HTTP requests. Modelled on Flume's ``HTTPSource``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """Options of Flume's ``http``, and limits."""

        port: int | None = option(None, least=0, most=65535, doc="port to listen on; 0 for any free one")
        format: str = option("json", flume="handler", doc="format of bodies", choices=_FORMATS)
        mandatory_parameters: tuple[str, ...] = option((), doc="query parameters that a blob must have")

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Replace Flume's handlers by formats, and drop options of Jetty."""
            handler = texts.get("handler", "json")
            found = {"handler": _HANDLERS.get(handler.rpartition(".")[2].lower(), handler)}
            kept = without_needless(texts, ["handler"])
            found |= {key: value for key, value in kept.items() if not key.startswith(_JETTYS)}
            if "handler.mandatoryParameters" in found:
                found["mandatoryParameters"] = found.pop("handler.mandatoryParameters").replace(",", " ")
            if "handler.maxBlobLength" in found:
                found["maxBody"] = found.pop("handler.maxBlobLength")
            return found

    @staticmethod
    def decode_sample(options: Options, data: bytes, _clock: Clock) -> EventBatch:
        """Return the events of a request's body, without the query's parameters.

        :raises RequestError: the body is invalid.
        """
        if options.format == "json":
            return events_of_json(data, lambda _size: None)
        return EventBatch.of_bodies([data.rstrip(b"\n")]) if options.format == "blob" else EventBatch.of_lines(data)

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, options.port or 0, context)
        self._options = options

    def _batches(self, request: Request, body: bytes) -> Iterable[EventBatch]:
        hold = partial(self._limits.hold, request)
        if self._options.format == "json":
            return [events_of_json(body, hold)]
        with refusing(ValueError, RecursionError, prefix=f"invalid {self._options.format}: "):
            return list(self._reckoned(self._read(request, body, hold), Reckoning(hold)))

    def _read(self, request: Request, body: bytes, hold: Callable[[int], None]) -> Iterable[EventBatch]:
        if self._options.format == "batches":
            return unpack(body, hold)
        if self._options.format == "lines":
            return [EventBatch.of_lines(body)]
        headers = request.parameters
        missing = [name for name in self._options.mandatory_parameters if name not in headers]
        if missing:
            raise RequestError(400, f"parameters are missing: {', '.join(missing)}")
        return [EventBatch.of_bodies([body], headers)]

    @staticmethod
    def _reckoned(batches: Iterable[EventBatch], reckoning: Reckoning) -> Iterator[EventBatch]:
        """Yield the batches, and count memory for the objects that interceptors make of their events."""
        for batch in batches:
            reckoning.count(max(batch.count, _AS_EVENTS))
            reckoning.need(OF_LINE * batch.count)
            yield batch
        reckoning.settle()
