"""Signed requests to LogHub that read its answers, with retries of temporary failures.

A busy server, an exceeded quota, a broken connection and expired credentials are temporary. Waits between attempts grow
and are random. The final error has the request, the destination, the answer, and the remedy. All attempts of a request
share one deadline, if the caller sets a timeout.

Source: LogHub protocol, Reading back; Signatures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote

import tenacity

from ..model.config import ProducerConfig, ProjectConfig
from ..model.credentials import Credentials
from ..model.errors import (
    AttemptError,
    ClockSkewError,
    CompressionError,
    CredentialsError,
    ServerError,
    UnauthorizedError,
)
from ..pipeline.sending.retry_rules import wait_backoff
from ..runtime.clock import Clock, Deadline, Signal, SystemClock
from ..sinks.http.ca_bundle import check_authorities
from ..sinks.http.failures import CERTIFICATE, PLAIN_HTTP, PROXY_AUTHENTICATION, page_of
from ..sinks.http.proxies import through
from ..sinks.http.server_time import clock_offset
from ..sinks.http.transport import Answer, Transport
from ..sinks.http.transport import Target as HttpTarget
from ..sinks.loghub.classify import BAD_RESPONSE, error_of_answer
from ..sinks.loghub.credentials.cache import CredentialsCache
from ..text.plural import counted
from ..wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4
from .errors import LogHubReadError

_T = TypeVar("_T")


#: Exceptions of a decoder for an answer that is not LogHub's.
_INVALID_ANSWER = (ValueError, LookupError, TypeError, CompressionError)

_KEY = "check the access key: {access_key_id}, the environment or the provider"
_ADVICE = {
    "ProjectNotExist": "check {project} and {endpoint}: a project exists in one region",
    "LogStoreNotExist": "check {logstore}",
    "LogstoreNotExist": "check {logstore}",
    "InvalidCursor": "the cursor is of another logstore, or older than what the logstore keeps",
    "InvalidAccessKeyId": _KEY,
    "MissAccessKeyId": _KEY,
    "ProjectForbidden": "ask the project's owner",
}
# Bytes of a foreign answer in a message.
_SHOWN = 100
# Largest answer, bytes, and longest attempt, milliseconds: answers may be long and networks slow, but not endless.
_MOST_BYTES, _LONGEST_ATTEMPT = 256 << 20, 600_000
_GENERAL = "check the parameters and the access key's permissions"


@dataclass(frozen=True, slots=True)
class Question:
    """A request before signing.

    :ivar path: the path, not percent-encoded.
    :ivar params: the query parameters.
    :ivar body: the body of a POST.
    :ivar headers: headers besides the standard ones.
    """

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(
        cls, path: str, content: object, params: Mapping[str, str] | None = None, method: str = "POST"
    ) -> Question:
        """Return a request with a JSON body."""
        headers = {"Content-Type": "application/json"}
        return cls(path, params or {}, method=method, body=json.dumps(content).encode(), headers=headers)


class SignedClient:
    """A client that signs requests and reads answers; a context manager. One thread at a time may use it.

    :param project: the project, with the credentials that sign.
    :param http: the destination.
    :param where: the destination in words.
    :param config: the version and region of signatures, ``http``, ``retries`` and their backoff; other options are
        ignored.
    :param names: the caller's names of ``project``, ``logstore``, ``endpoint`` and ``access_key_id``, for messages.
    :param most_bytes: largest answer, bytes before decompression; None for 256 MiB.
    :param timeout: seconds for a request with all its attempts and waits; None for no limit.
    :param timeout_name: the caller's name of the timeout, for messages.
    :param advice: remedies by the server's error code, in addition to the general ones; empty for an error that needs
        none.
    """

    def __init__(
        self,
        project: ProjectConfig,
        http: HttpTarget,
        where: str,
        *,
        names: Mapping[str, str],
        advice: Mapping[str, str] | None = None,
        config: ProducerConfig | None = None,
        clock: Clock | None = None,
        most_bytes: int | None = None,
        timeout: float | None = None,
        timeout_name: str = "timeout",
    ) -> None:
        self._timeout = timeout
        self._limit = "" if timeout is None else f"{timeout:g} s, the most that a request may take ({timeout_name})"
        self._most_bytes = most_bytes or _MOST_BYTES
        self._project, self._http, self._where, self._names = project, http, where, names
        self._advice = {**_ADVICE, **(advice or {})}
        self._config = config or ProducerConfig()
        self._clock = clock or SystemClock()
        self._credentials = CredentialsCache(project.credentials, self._clock, "loghub-reader-credentials")
        check_authorities(self._config.http, http.base_url)
        limits = replace(self._config.http, attempt_timeout_ms=self._config.http.attempt_timeout_ms or _LONGEST_ATTEMPT)
        # Slow answers are not logged: the caller waits for them.
        self._transport = Transport(limits, 1, self._clock, "loghub-reader", most=self._most_bytes, warns=False)
        self._proxies = self._transport.proxies_for(http.base_url)
        self._clock_offset = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def json(self, what: str, question: Question, take: Callable[[Any], _T]) -> _T:
        """Return what ``take`` makes of the answer's JSON.

        :raises LogHubReadError: the last attempt failed.
        """
        return self.ask(what, question, lambda answer, _: take(json.loads(answer.body)))

    def ask(self, what: str, question: Question, take: Callable[[Answer, Mapping[str, str]], _T]) -> _T:
        """Return what ``take`` makes of the answer and its headers.

        :param what: the request in words.
        :raises LogHubReadError: the last attempt failed; the error describes it.
        """

        def attempt() -> _T:
            answer, headers = self._get(question)
            try:
                return take(answer, headers)
            except _INVALID_ANSWER as error:
                raise _invalid_answer(answer, error) from error

        attempts = _Attempts(self._config, self._timeout)
        if self._timeout is not None:
            self._transport.hurry(Deadline.after(self._clock, self._timeout), self._limit)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(attempts.may_be_repeated),
            stop=attempts.are_over,
            wait=wait_backoff(self._config.base_retry_backoff_ms / 1000, self._config.max_retry_backoff_ms / 1000),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except AttemptError as error:
            raise LogHubReadError(self._words(what, error, attempts.made)) from error

    def _get(self, question: Question) -> tuple[Answer, Mapping[str, str]]:
        """Send one request and return the answer with its headers.

        :raises AttemptError: there was no answer, or a refusal.
        """
        credentials = self._credentials.get()
        answer, headers = self._transport.request(
            question.method,
            self._http.base_url,
            quote(question.path),
            question.params,
            self._signed(question, credentials),
            question.body,
            self._proxies,
        )
        if answer.status != HTTPStatus.OK:
            raise self._learn(credentials, answer, headers)
        if len(answer.body) == self._most_bytes:
            words = f"an answer of {counted(self._most_bytes, 'byte')}, or more: ask for less at a time"
            raise ServerError(BAD_RESPONSE, words, http_status=answer.status, request_id=answer.request_id)
        return answer, headers

    def _signed(self, question: Question, credentials: Credentials) -> dict[str, str]:
        config = self._config
        headers = {
            "Host": self._http.host,
            "User-Agent": self._project.user_agent or config.http.user_agent,
            "Accept": "application/json",
            "Accept-Encoding": "lz4",
            "x-log-apiversion": "0.6.0",
            "x-log-bodyrawsize": str(len(question.body)),
            **question.headers,
        }
        unsigned = UnsignedRequest(
            method=question.method, path=question.path, params=question.params, headers=headers, body=question.body
        )
        key = SigningKey(
            access_key_id=credentials.access_key_id,
            access_key_secret=credentials.access_key_secret,
            security_token=credentials.security_token,
            region=config.region,
        )
        now = datetime.fromtimestamp(self._clock.time() + self._clock_offset, UTC)
        return sign_v4(unsigned, key, now) if config.sign_version == "v4" else sign_v1(unsigned, key, now)

    def _learn(self, credentials: Credentials, answer: Answer, headers: Mapping[str, str]) -> AttemptError:
        """Return the error of ``answer``, and note refused credentials and the server's time."""
        error = error_of_answer(answer, headers, self._way())
        if isinstance(error, UnauthorizedError):
            self._credentials.refused(credentials)
        elif isinstance(error, ClockSkewError):
            self._clock_offset = clock_offset(headers.get("Date"), self._clock.time()) or self._clock_offset
        return error

    def _way(self) -> str:
        return through(self._http.base_url, self._proxies)

    def _sleep(self, seconds: float) -> None:
        self._clock.wait_for(Signal(), Deadline.after(self._clock, seconds))

    def _words(self, what: str, error: AttemptError, attempts: int) -> str:
        status = "no answer" if error.http_status is None else f"status {error.http_status}"
        status = "not sent" if isinstance(error, CredentialsError) else status
        times = "" if attempts == 1 else f" after {attempts} attempts"
        general = _general_advice(error)
        if isinstance(error, UnauthorizedError) and self._config.sign_version == "v4":
            general += f", and whether {self._config.region!r} is the server's region"
        advice = self._advice.get(error.code, general) if general else ""
        return (
            f"{what} of {self._where}: {status}, {error.code}: {error.message} "
            f"(request id {error.request_id or 'none'}){times}"
            f"{'; ' if advice else ''}{advice.format(**self._names)}"
        )


class _Attempts:
    """The attempts of one request, counted by kind of error."""

    def __init__(self, config: ProducerConfig, timeout: float | None) -> None:
        self._timeout = math.inf if timeout is None else timeout
        self._most = max(0, config.retries) + 1
        self._of_kind: dict[type[AttemptError], int] = {}
        self.made = 0

    def may_be_repeated(self, error: BaseException) -> bool:
        """Count the attempt; return True if its error is temporary."""
        self.made += 1
        if not isinstance(error, AttemptError):
            return False
        self._of_kind[type(error)] = self._of_kind.get(type(error), 0) + 1
        # A writer retries a missing shard, which is being split. A reader got its shards from the server.
        return error.retriable and error.code != "ShardNotExist"

    def are_over(self, state: tenacity.RetryCallState) -> bool:
        """Return True after the last attempt, or if the next one would begin too late."""
        if (state.seconds_since_start or 0.0) + state.upcoming_sleep >= self._timeout:
            return True
        error = cast("AttemptError", cast("Any", state.outcome).exception())
        most = self._most if error.max_consecutive is None else min(self._most, error.max_consecutive + 1)
        return self.made >= self._most or self._of_kind.get(type(error), 0) >= most


def _invalid_answer(answer: Answer, error: Exception) -> ServerError:
    """Return the error for status 200 with a foreign answer, such as a portal's page, or half an answer."""
    begins = page_of(answer.body, _SHOWN)
    message = f"an answer that is not LogHub's: {begins!r} ({type(error).__name__}: {error})"
    return ServerError(BAD_RESPONSE, message, http_status=answer.status, request_id=answer.request_id)


def _general_advice(error: AttemptError) -> str:
    if error.code == PROXY_AUTHENTICATION or any(phrase in error.message for phrase in (CERTIFICATE, PLAIN_HTTP)):
        return ""  # its message has the remedy
    if isinstance(error, CredentialsError):
        return ""  # its message has the sources
    fitting = (
        (isinstance(error, UnauthorizedError), "check the access key, its security token and its permission to read"),
        (isinstance(error, ClockSkewError), "set this machine's clock"),
        (error.http_status is None, "check {endpoint}, and the network and proxies between here and there"),
        (error.code == BAD_RESPONSE, "check {endpoint}: a proxy, a portal or another server may have answered"),
        (error.retriable, "try again later"),
    )
    return next((words for fits, words in fitting if fits), _GENERAL)
