"""Send events to a web server by POST; the status of the answer decides their fate. Modelled on Flume's ``HttpSink``.

Two rules apply to each status: whether the events go back to the channel (``rollback``), and whether the sink pauses
(``backoff``). Both are options for a status such as ``503``, for a group such as ``5XX``, and for all others. Without
rules, a 2XX accepts the events, a status in ``refused`` refuses them permanently, and all others are retried. A request
without a usable answer is retried, too.

``format`` is the form of a request: ``lines``, ``json`` (the list of headers and bodies for Flume's handler), one
``event`` as in Flume, or whole ``batches`` for another agent. A refused request is halved until the events that the
server refuses are found, with at most two requests for each event. Accepted events are not sent again while the sink
lives.
"""

from __future__ import annotations

import gzip
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...model.config import HttpConfig
from ...model.errors import AttemptError, ConfigError
from ...model.options import option
from ...runtime.clock import Clock, Deadline
from ...runtime.loggers import get_logger
from ...sinks.http.ca_bundle import client_context, file_of_authorities
from ...sinks.http.failures import elsewhere, error_of_proxy, page_of
from ...sinks.http.proxies import through
from ...sinks.http.server_time import clock_offset
from ...sinks.http.transport import Answer, Transport
from ..config.options import missing_file
from ..events.batch import EventBatch
from ..events.interfaces import Context, RefusedError, SinkError
from ..flow.held_back import HELD_BYTES
from ..protocols.batches import CONTENT_TYPE
from ..protocols.proxies import PROXY, proxies_of
from ..protocols.tls_files import RenewedTls, load_authorities, load_own, validity_errors
from .http_parts import BatchesForm, Encoded, Form, Part, Progress, TextForm, halves, requests_of

_log = get_logger("loghub.agent.sink")

#: Seconds of a pause if the answer has no Retry-After.
_BACKOFF = 1.0
#: Maximum seconds of a pause that the server may ask for.
_LONGEST_RETRY_AFTER = 600.0
#: Unsupported Media Type: the fault of the sink's options, not of an event.
_UNSUPPORTED = 415
_CONTENT_TYPES = {
    "event": "text/plain",
    "lines": "text/plain",
    "json": "application/json",
    "batches": CONTENT_TYPE,
}
#: Maximum number of events in a request of batches, which is only limited by its bytes.
_MOST_EVENTS = 1_000_000
#: Characters of an answer that are read, and that are shown in messages.
_PAGE, _SHOWN = 4096, 200
#: Shorter secrets are not hidden in messages: too much of the text would be hidden.
_LEAST_SECRET = 4


class HttpSink:
    """Sink that sends events in HTTP requests. Modelled on Flume's ``HttpSink``.

    :param form: the form of requests; None for that of the options.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``http``, and more."""

        endpoint: str = option(doc="URL of the server")
        format: str = option("lines", doc="format of a request's body", choices=tuple(_CONTENT_TYPES))
        batch_size: int = option(1000, least=1, doc="maximum number of events in a request")
        most_bytes: int = option(
            1 << 20, least=1, unit="bytes", doc="maximum bytes of a request, unless a single event has more"
        )
        connect_timeout: float = option(5.0, scale=0.001, least=0.001, doc="seconds to connect")
        request_timeout: float = option(30.0, scale=0.001, least=0.001, doc="seconds that the server may be silent")
        content_type: str | None = option(None, flume="contentTypeHeader", doc="Content-Type; empty for the format's")
        accept: str = option("*/*", flume="acceptHeader", doc="Accept header of requests")
        headers: Mapping[str, str] = option({}, secret=True, doc="further headers of each request")
        compress: bool = option(False, doc="compress bodies with gzip")
        user: str | None = option(None, doc="user for basic authentication")
        password: str | None = option(None, secret=True, doc="password for basic authentication")
        token: str | None = option(None, secret=True, doc="token for bearer authentication")
        verify: bool = option(True, doc="check the server's certificate")
        authorities: str | None = option(None, doc="PEM file of trusted authorities; empty for certifi's")
        certificate: Path | None = option(None, doc="PEM file with a client certificate")
        key: Path | None = option(None, doc="PEM file with its key, if it is not in the same file")
        proxy: str | None = option(None, secret=True, doc=PROXY)
        default_rollback: bool = option(True, doc="whether events go back after a status without a rule")
        default_backoff: bool = option(True, doc="whether the sink pauses after a status without a rule")
        rollback: Mapping[str, bool] = option({}, doc="whether events go back, by status or group")
        backoff: Mapping[str, bool] = option({}, doc="whether the sink pauses, by status or group")
        refused: tuple[str, ...] = option(
            ("400", "413", "415", "422"), doc="statuses that refuse events permanently: they go to the dead letters"
        )

        def __post_init__(self) -> None:
            check_request_options(self.endpoint, self.user, self.token, self.refused)
            check_certificate(self.certificate, self.key)
            proxies_of(self.proxy)
            for status in (*self.rollback, *self.backoff):
                _check_status(status)

        def missing(self) -> Iterator[ConfigError]:
            """Yield an error for each file that cannot be used."""
            return missing_certificates(self)

        def holds(self) -> int:
            """Return the maximum bytes held: a delivery, its encoded events, one request, and refused events."""
            return 4 * self.most_bytes + HELD_BYTES

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Set Flume's format of one event, and drop the options of its metrics."""
            ignored = ("incrementMetrics.", "defaultIncrementMetrics")
            return {"format": "event"} | {k: v for k, v in texts.items() if not k.startswith(ignored)}

    @staticmethod
    def render_sample(options: Options, event: EventBatch, _clock: Clock) -> str:
        """Return the body of a request with one event; a batch for another agent as text."""
        form = TextForm("json" if options.format == "batches" else options.format)
        return form.body([Part(Encoded(event, form, Progress()), 0, 1)]).decode(errors="backslashreplace")

    def __init__(self, options: Options, context: Context, form: Form | None = None) -> None:
        self._options, self._clock, self._counters = options, context.clock, context.counters
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        parts = urlsplit(options.endpoint)
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        #: URL for messages, without the query, which may contain a secret.
        self._url = self._base + (parts.path or "/")
        config = HttpConfig(
            connect_timeout_ms=max(1, round(options.connect_timeout * 1000)),
            read_timeout_ms=max(1, round(options.request_timeout * 1000)),
            verify=options.verify,
            ca_bundle=options.authorities,
            proxies=proxies_of(options.proxy),
        )
        files = (options.certificate, options.key), file_of_authorities(config)
        self._tls = RenewedTls(partial(_tls, options, config), *files, f"sink {context.name}", context)
        name = f"producer-agent-{context.name}"
        self._transport = Transport(config, 1, context.clock, name, tls=self._tls.context)
        self._proxies = self._transport.proxies_for(self._base)
        self._headers = _headers(options, parts.netloc, config.user_agent)
        self._secrets = sorted(_secrets(options, self._headers, self._proxies), key=len, reverse=True)
        self._not_before = context.clock.monotonic()
        self._form = form or (BatchesForm() if options.format == "batches" else TextForm(options.format))
        self._most_of_a_request = 1 if options.format == "event" else options.batch_size
        if options.format == "batches":
            self.most_events = self._most_of_a_request = _MOST_EVENTS
        #: Progress of each batch in the last delivery, by its number.
        self._progress: dict[int, Progress] = {}
        self._refusal, self._refused_by = "", 0
        self._ends = False

    def write(self, batches: Sequence[EventBatch]) -> None:
        self._check_pause()
        self._tls.context()  # report faults of new files before a connection needs them
        given = [Encoded(batch, self._form, self._progress_of(batch)) for batch in batches]
        progress = {one.batch.sequence: one.progress for one in given if one.batch.sequence is not None}
        self._progress = progress or self._progress  # keep it past batches without numbers
        failure: SinkError | None = None
        try:
            self._deliver(given)
        except SinkError as error:
            failure = error
        later = [one.batch for one in given if not one.ended]
        refused = [batch for one in given if one.ended and (batch := one.refused()) is not None]
        if refused:
            raise RefusedError(self._refusal, refused, later)
        if failure is not None:
            raise SinkError(str(failure), later) from failure

    def give_up(self, deadline: Deadline) -> None:
        self._ends = True
        self._transport.hurry(deadline)

    def close(self) -> None:
        self._transport.close()

    def _check_pause(self) -> None:
        """:raises SinkError: the server has asked for a pause that is not over."""
        wait = self._not_before - self._clock.monotonic()
        if wait > 0:
            raise SinkError(f"{self._url} asked for a pause, which lasts another {wait:.1f} s")

    def _progress_of(self, batch: EventBatch) -> Progress:
        return Progress() if batch.sequence is None else self._progress.get(batch.sequence, Progress())

    def _deliver(self, given: Sequence[Encoded]) -> None:
        """Send all that is not completed; for a completed batch that came again, retry the refused events.

        :raises SinkError: some events go back to the channel.
        """
        for one in filter(lambda each: each.ended, given):
            for number in list(one.progress.refused):
                if not self._send(self._form.body([Part(one, number, number + 1)])):
                    one.progress.refused.remove(number)
        brackets = self._options.format == "json"
        for parts in requests_of(given, self._most_of_a_request, self._options.most_bytes - brackets):
            self._settle(parts)

    def _settle(self, parts: Sequence[Part]) -> None:
        """Send events in order, and record their outcome; send halves if the server refuses some of them.

        :raises SinkError: the events without a recorded outcome go back to the channel.
        """
        status = self._send(self._form.body(parts))
        if status not in (0, _UNSUPPORTED) and sum(part.stop - part.start for part in parts) > 1:
            for half in halves(parts):
                self._settle(half)
            return
        for part in parts:
            if status:
                part.of.progress.refused += range(part.start, part.stop)
            part.of.progress.done = part.stop

    def _send(self, body: bytes) -> int:
        """Send one request; return the status of a permanent refusal, or 0.

        :raises SinkError: the events go back to the channel.
        """
        if self._ends:
            raise SinkError(f"the sink was stopped before all events were sent to {self._url}")
        if self._options.compress:
            body = gzip.compress(body, 1)
        try:
            answer, headers = self._transport.request(
                "POST", self._base, self._path, {}, self._headers, body, self._proxies
            )
        except AttemptError as error:
            self._counters.add(ConnectionFailedCount=1)
            raise SinkError(f"{self._url}: {error}") from error
        if self._is_refused(answer, headers):
            return self._refused_by
        self._taken(answer.body)
        return 0

    def _taken(self, answer: bytes) -> None:
        """Handle the answer to an accepted request; a hook for subclasses."""

    def _is_refused(self, answer: Answer, headers: Mapping[str, str]) -> bool:
        options, status = self._options, answer.status
        taken = 200 <= status < 300
        back = _rule(options.rollback, status)
        description = self._description(answer, headers)
        if back is None and str(status) in options.refused:
            self._refusal, self._refused_by = description, status
            return True
        if back is None:
            back = not taken and options.default_rollback
        pause = _rule(options.backoff, status)
        if pause is None:
            pause = not taken and options.default_backoff
        if pause:
            self._not_before = self._clock.monotonic() + self._pause(headers)
        if back:
            raise SinkError(description)
        return False

    def _description(self, answer: Answer, headers: Mapping[str, str]) -> str:
        way, status = through(self._base, self._proxies), answer.status
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return f"{self._url}: {error_of_proxy(way)}"
        body = page_of(answer.body, _PAGE)
        for secret in self._secrets:
            body = body.replace(secret, "***")
        body = body[:_SHOWN]
        return f"{self._url}{way} answered {status}{elsewhere(status, headers)}: {body!r}"

    def _pause(self, headers: Mapping[str, str]) -> float:
        """Return the seconds of a pause: the server's if it asks for one. A date is compared with the answer's date."""
        text, now = (headers.get("Retry-After") or "").strip(), self._clock.time()
        if text.isdecimal():
            return min(float(text), _LONGEST_RETRY_AFTER)
        wanted = clock_offset(text, now)
        if wanted is None:
            return _BACKOFF
        return min(max(wanted - (clock_offset(headers.get("Date"), now) or 0.0), 0.0), _LONGEST_RETRY_AFTER)


def check_request_options(endpoint: str, user: str | None, token: str | None, refused: Sequence[str]) -> None:
    """Check the options of all sinks that send requests.

    :raises ConfigError: an option is invalid.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("endpoint", "must be a URL of http or https", endpoint)
    if parts.username or parts.password:
        raise ConfigError("endpoint", "must not contain a password: use the options user and password", "***")
    if token is not None and user is not None:
        raise ConfigError("token", "must not be given together with user and password", "***")
    for status in refused:
        _check_status(status)


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Check the options of the client certificate.

    :raises ConfigError: there is a key without a certificate.
    """
    if key is not None and certificate is None:
        raise ConfigError("key", "needs certificate, which is missing", str(key))


def missing_certificates(options: Any) -> Iterator[ConfigError]:
    """Yield an error for each certificate file that cannot be used, or has expired."""
    yield from unusable_certificates(options)
    yield from validity_errors(options.certificate, options.key)


def unusable_certificates(options: Any) -> Iterator[ConfigError]:
    """Yield an error for each certificate file that cannot be used."""
    yield from missing_file("authorities", options.authorities)
    try:
        if options.certificate is not None:
            load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), options.certificate, options.key)
    except ConfigError as error:
        yield error


def _tls(options: HttpSink.Options, config: HttpConfig) -> ssl.SSLContext | None:
    """Return the TLS context for the server; None without TLS.

    :raises ConfigError: the files cannot be used.
    """
    if not options.endpoint.lower().startswith("https:"):
        return None
    if options.verify and options.authorities is not None:  # so that an error names the option
        load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "authorities", Path(options.authorities))
    context = client_context(config)
    if options.certificate is not None:
        load_own(context, options.certificate, options.key)
    return context


def _check_status(status: str) -> None:
    if len(status) != 3 or not (status.isdecimal() or (status[0].isdecimal() and status[1:] == "XX")):
        raise ConfigError("rollback, backoff and refused", "must name statuses such as 503 or 5XX", status)


def _rule(rules: Mapping[str, bool], status: int) -> bool | None:
    return rules.get(str(status), rules.get(f"{status // 100}XX"))


def _secrets(options: HttpSink.Options, headers: Mapping[str, str], proxies: Mapping[str, str]) -> set[str]:
    """Return secrets that an answer may repeat: some error pages show the whole request."""
    ways = [urlsplit(url) for url in proxies.values()]
    pairs = [f"{unquote(way.username)}:{unquote(way.password)}" for way in ways if way.username and way.password]
    found = {options.password, options.token, *options.headers.values(), urlsplit(options.endpoint).query}
    found |= {headers.get("Authorization", "").removeprefix("Basic "), *(way.password for way in ways)}
    found |= {text for pair in pairs for text in (pair.partition(":")[2], b64encode(pair.encode()).decode())}
    return {secret for secret in found if secret and len(secret) >= _LEAST_SECRET}


def _headers(options: HttpSink.Options, host: str, agent: str) -> dict[str, str]:
    kind = options.content_type or _CONTENT_TYPES[options.format]
    headers = {"Host": host, "User-Agent": agent, "Accept": options.accept, "Content-Type": kind}
    if options.compress:
        headers["Content-Encoding"] = "gzip"
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    if options.user is not None:
        pair = f"{options.user}:{options.password or ''}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return headers | dict(options.headers)
