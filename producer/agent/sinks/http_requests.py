"""Sending of requests, for all sinks that use HTTP: progress, refusals, halving, pauses and messages.

The status of an answer decides the fate of the request's events. A refused request is halved until the events that the
server refuses are found, with at most two requests for each event. An accepted request may still name events that were
refused, or must be sent again. Accepted events are not sent again while the sink lives.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from ...model.config import HttpConfig
from ...model.errors import AttemptError
from ...runtime.clock import Deadline
from ...sinks.http.answers import MOST_OF_AN_ANSWER
from ...sinks.http.ca_bundle import file_of_authorities
from ...sinks.http.failures import elsewhere, error_of_proxy, page_of
from ...sinks.http.proxies import through
from ...sinks.http.server_time import clock_offset
from ...sinks.http.transport import Answer, Transport
from ...text.printable import masked
from ..events.batch import EventBatch
from ..events.interfaces import Context, RefusedError, SinkError
from ..protocols.tls_files import RenewedTls
from .http_options import RequestOptions, secrets_of
from .http_parts import ALL_TAKEN, Encoded, Form, Outcome, Part, Progress, Reason, count_of, halves, record, requests_of

#: Seconds of a pause if the answer has no Retry-After.
_BACKOFF = 1.0
#: Maximum seconds of a pause that the server may ask for.
_LONGEST_RETRY_AFTER = 600.0
#: Unsupported Media Type: the fault of the sink's options, not of an event.
_UNSUPPORTED = 415
#: Characters of an answer that are read, and that are shown in messages.
_PAGE, _SHOWN = 4096, 200


class RequestSink:
    """Base of sinks that send events in HTTP requests.

    :param url: the URL of requests; its query is not shown in messages, since it may contain a secret.
    :param headers: the sink's own headers.
    """

    #: Maximum bytes of an answer to read.
    most_answer = MOST_OF_AN_ANSWER
    #: False if the transport compresses bodies.
    compresses = True
    #: True if the server recognizes an event that is sent again.
    numbered = False

    def __init__(
        self, options: RequestOptions, context: Context, form: Form, url: str, headers: Mapping[str, str]
    ) -> None:
        self._request_options, self._clock, self._counters = options, context.clock, context.counters
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        self._most_of_a_request, self._request_bytes = options.batch_size, options.most_bytes
        parts, config = urlsplit(url), options.config()
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._url = self._base + (parts.path or "/")
        self._tls, self._transport = self._connections(options, config, context)
        self._proxies = self._transport.proxies_for(self._base)
        self._headers = options.request_headers(config.user_agent, headers)
        self._secrets = secrets_of(options, self._headers, self._proxies)
        self._not_before = context.clock.monotonic()
        self._form = form
        #: Progress of each batch in the last delivery, by its number.
        self._progress: dict[int, Progress] = {}
        self._ends = False

    def _connections(
        self, options: RequestOptions, config: HttpConfig, context: Context
    ) -> tuple[RenewedTls[Any], Transport]:
        """Return the TLS of connections, and the transport of requests. A hook for subclasses."""
        files = (options.certificate, options.key), file_of_authorities(config)
        tls = RenewedTls(partial(options.tls, config), *files, f"sink {context.name}", context)
        name = f"producer-agent-{context.name}"
        return tls, Transport(config, 1, context.clock, name, tls=tls.context, most=self.most_answer)

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
        refusals = [refusal for one in given if one.ended for refusal in one.refusals()]
        if refusals:
            raise RefusedError.of(refusals, later, numbered=self.numbered)
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
                self._settle([Part(one, number, number + 1)])
        for parts in requests_of(given, self._most_of_a_request, self._request_bytes):
            self._settle(parts)

    def _settle(self, parts: Sequence[Part]) -> None:
        """Send events in order, and record their outcome; send halves if the server refuses some of them.

        :raises SinkError: the events without a recorded outcome go back to the channel.
        """
        count = count_of(parts)
        outcome = self._send(self._form.body(parts), count)
        if outcome.some and count > 1:
            for half in halves(parts):
                self._settle(half)
            return
        record(parts, outcome)
        if outcome.again:
            self._not_before = self._clock.monotonic() + _BACKOFF
            raise SinkError(outcome.why)

    def _send(self, body: bytes, count: int) -> Outcome:
        """Send one request; return the outcome of its events.

        :raises SinkError: the events go back to the channel.
        """
        if self._ends:
            raise SinkError(f"the sink was stopped before all events were sent to {self._url}")
        if self._request_options.compress and self.compresses:
            body = gzip.compress(body, 1)
        try:
            answer, headers = self._transport.request(
                "POST", self._base, self._path, {}, self._headers, body, self._proxies
            )
        except AttemptError as error:
            self._counters.add(ConnectionFailedCount=1)
            raise SinkError(f"{self._url}: {error}") from error
        status = answer.status
        if self._refuses(status):
            reason = Reason(str(status), self._description(answer, headers))
            return Outcome(dict.fromkeys(range(count), reason), some=status != _UNSUPPORTED)
        if self._pauses(status):
            self._not_before = self._clock.monotonic() + self._pause(headers)
        if self._goes_back(status):
            raise SinkError(self._description(answer, headers))
        return self._outcome(answer.body, count) or ALL_TAKEN

    def _outcome(self, answer: bytes, count: int) -> Outcome | None:
        """Return the outcome of the events of an accepted request; None if all were accepted. A hook for subclasses.

        :raises SinkError: the answer is invalid.
        """

    def _refuses(self, status: int) -> bool:
        return str(status) in self._request_options.refused

    def _goes_back(self, status: int) -> bool:
        return not _is_success(status)

    def _pauses(self, status: int) -> bool:
        return not _is_success(status)

    def _description(self, answer: Answer, headers: Mapping[str, str]) -> str:
        way, status = through(self._base, self._proxies), answer.status
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return f"{self._url}: {error_of_proxy(way)}"
        body = self._shown(page_of(answer.body, _PAGE))
        return f"{self._url}{way} answered {status}{elsewhere(status, headers)}: {body!r}"

    def _shown(self, text: str) -> str:
        """Return the beginning of a server's text, without secrets."""
        return masked(text, self._secrets)[:_SHOWN]

    def _pause(self, headers: Mapping[str, str]) -> float:
        """Return the seconds of a pause: the server's if it asks for one. A date is compared with the answer's date."""
        text, now = (headers.get("Retry-After") or "").strip(), self._clock.time()
        if text.isdecimal():
            return min(float(text), _LONGEST_RETRY_AFTER)
        wanted = clock_offset(text, now)
        if wanted is None:
            return _BACKOFF
        return min(max(wanted - (clock_offset(headers.get("Date"), now) or 0.0), 0.0), _LONGEST_RETRY_AFTER)


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def with_path(endpoint: str, path: str) -> str:
    """Return the URL of requests: the endpoint, with a path if it has none."""
    parts = urlsplit(endpoint)
    return parts._replace(path=parts.path if parts.path.strip("/") else path).geturl()
