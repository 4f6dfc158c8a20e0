"""Send events to a web server by POST; the status of the answer decides their fate. Modelled on Flume's ``HttpSink``.

Two rules apply to each status: whether the events go back to the channel (``rollback``), and whether the sink pauses
(``backoff``). Both are options for a status such as ``503``, for a group such as ``5XX``, and for all others. Without
rules, a 2XX accepts the events, a status in ``refused`` refuses them permanently, and all others are retried. A request
without a usable answer is retried, too.

``format`` is the form of a request: ``lines``, ``json`` (the list of headers and bodies for Flume's handler), one
``event`` as in Flume, or whole ``batches`` for another agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Clock
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..protocols.batches import CONTENT_TYPE
from .http_options import RequestOptions, check_statuses
from .http_parts import BatchesForm, TextForm, sample_of
from .http_requests import RequestSink

_CONTENT_TYPES = {
    "event": "text/plain",
    "lines": "text/plain",
    "json": "application/json",
    "batches": CONTENT_TYPE,
}
#: Maximum number of events in a request of batches, which is only limited by its bytes.
_MOST_EVENTS = 1_000_000


class HttpSink(RequestSink):
    """Sink that sends events in HTTP requests. Modelled on Flume's ``HttpSink``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """Options of Flume's ``http``, and more."""

        format: str = option("lines", doc="format of a request's body", choices=tuple(_CONTENT_TYPES))
        compress: bool = option(False, doc="compress bodies with gzip")
        connect_timeout: float = option(5.0, scale=0.001, least=0.001, doc="seconds to connect")
        request_timeout: float = option(30.0, scale=0.001, least=0.001, doc="seconds that the server may be silent")
        content_type: str | None = option(None, flume="contentTypeHeader", doc="Content-Type; empty for the format's")
        accept: str = option("*/*", flume="acceptHeader", doc="Accept header of requests")
        default_rollback: bool = option(True, doc="whether events go back after a status without a rule")
        default_backoff: bool = option(True, doc="whether the sink pauses after a status without a rule")
        rollback: Mapping[str, bool] = option({}, doc="whether events go back, by status or group")
        backoff: Mapping[str, bool] = option({}, doc="whether the sink pauses, by status or group")

        def __post_init__(self) -> None:
            RequestOptions.__post_init__(self)
            check_statuses([*self.rollback, *self.backoff])

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Set Flume's format of one event, and drop the options of its metrics."""
            ignored = ("incrementMetrics.", "defaultIncrementMetrics")
            return {"format": "event"} | {k: v for k, v in texts.items() if not k.startswith(ignored)}

    @staticmethod
    def render_sample(options: Options, event: EventBatch, _clock: Clock) -> str:
        """Return the body of a request with one event; a batch for another agent as text."""
        return sample_of(TextForm("json" if options.format == "batches" else options.format), event)

    def __init__(self, options: Options, context: Context) -> None:
        form = BatchesForm() if options.format == "batches" else TextForm(options.format)
        kind = options.content_type or _CONTENT_TYPES[options.format]
        super().__init__(options, context, form, options.endpoint, {"Content-Type": kind, "Accept": options.accept})
        self._options = options
        if options.format == "event":
            self._most_of_a_request = 1
        elif options.format == "batches":
            self.most_events = self._most_of_a_request = _MOST_EVENTS
        elif options.format == "json":
            self._request_bytes -= 1  # the brackets, less the last comma

    def _refuses(self, status: int) -> bool:
        return _rule(self._options.rollback, status) is None and super()._refuses(status)

    def _goes_back(self, status: int) -> bool:
        rule = _rule(self._options.rollback, status)
        return super()._goes_back(status) and self._options.default_rollback if rule is None else rule

    def _pauses(self, status: int) -> bool:
        rule = _rule(self._options.backoff, status)
        return super()._pauses(status) and self._options.default_backoff if rule is None else rule


def _rule(rules: Mapping[str, bool], status: int) -> bool | None:
    return rules.get(str(status), rules.get(f"{status // 100}XX"))
