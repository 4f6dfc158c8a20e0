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
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import quote

import tenacity

from ..model.config import ProducerConfig, ProjectConfig
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
from ..runtime.closing import Closing
from ..sinks.http.failures import CERTIFICATE, PLAIN_HTTP, PROXY_AUTHENTICATION, page_of
from ..sinks.http.transport import Answer, Target, Transport, target_of
from ..sinks.loghub.classify import BAD_RESPONSE
from ..sinks.loghub.endpoint_choice import MOST_FAILURES
from ..sinks.loghub.failover import Failover
from ..sinks.loghub.project_at import ProjectAt, at_each_endpoint
from ..text.plural import counted
from ..wire.signing import UnsignedRequest
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
#: Prefix of thread names.
_NAME = "loghub-reader"
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


class SignedClient(Closing):
    """A client that signs requests and reads answers; a context manager. One thread at a time may use it.

    It uses the endpoints of a project as a producer does, but none of another project, which has other logs.

    :param project: the project, with the credentials that sign.
    :param where: the destination in words, without the endpoint.
    :param config: the version and region of signatures, ``http``, ``failover_ms``, ``retries`` for each endpoint and
        their backoff; other options are ignored.
    :param names: the caller's names of ``project``, ``logstore``, ``endpoint`` and ``access_key_id``, for messages.
    :param most_bytes: largest answer, bytes before decompression; None for 256 MiB.
    :param timeout: seconds for a request with all its attempts and waits; None for no limit.
    :param timeout_name: the caller's name of the timeout, for messages.
    :param advice: remedies by the server's error code, in addition to the general ones; empty for an error that needs
        none.
    :param target: returns the target of a project at an endpoint.
    """

    def __init__(
        self,
        project: ProjectConfig,
        where: str,
        *,
        names: Mapping[str, str],
        advice: Mapping[str, str] | None = None,
        config: ProducerConfig | None = None,
        clock: Clock | None = None,
        most_bytes: int | None = None,
        timeout: float | None = None,
        timeout_name: str = "timeout",
        target: Callable[[str, str], Target] = target_of,
    ) -> None:
        self._timeout = timeout
        self._limit = "" if timeout is None else f"{timeout:g} s, the most that a request may take ({timeout_name})"
        self._most_bytes = most_bytes or _MOST_BYTES
        self._where, self._names = where, names
        self._advice = {**_ADVICE, **(advice or {})}
        self._config = config or ProducerConfig()
        self._clock = clock or SystemClock()
        limits = replace(self._config.http, attempt_timeout_ms=self._config.http.attempt_timeout_ms or _LONGEST_ATTEMPT)
        # Slow answers are not logged: the caller waits for them.
        self._transport = Transport(limits, 1, self._clock, _NAME, most=self._most_bytes, warns=False)
        alone = project.alone()
        everywhere = at_each_endpoint(alone, self._config, self._transport, self._clock, f"{_NAME}-credentials", target)
        self._endpoints = Failover(alone, everywhere, _NAME)

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

        def attempt(project: ProjectAt, patience: float, _why: str) -> _T:
            answer, headers = self._get(project, question, patience)
            try:
                return take(answer, headers)
            except _INVALID_ANSWER as error:
                raise _invalid_answer(answer, error) from error

        attempts = _Attempts(self._config, self._timeout, self._endpoints)
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
            return cast("_T", retrying(self._endpoints.attempt, attempt))
        except AttemptError as error:
            raise LogHubReadError(self._words(what, error, attempts.made)) from error

    def _get(self, project: ProjectAt, question: Question, patience: float) -> tuple[Answer, Mapping[str, str]]:
        """Send one request and return the answer with its headers.

        :raises AttemptError: there was no answer, or a refusal.
        """
        headers = {
            "Host": project.target.host,
            "User-Agent": project.user_agent,
            "Accept": "application/json",
            "Accept-Encoding": "lz4",
            "x-log-apiversion": "0.6.0",
            "x-log-bodyrawsize": str(len(question.body)),
            **question.headers,
        }
        path, body = quote(question.path), question.body
        request = UnsignedRequest(method=question.method, path=path, params=question.params, headers=headers, body=body)
        answer, received, credentials = project.exchange(request, self._transport, patience)
        if answer.status != HTTPStatus.OK:
            raise project.learn(credentials, answer, received)
        if len(answer.body) == self._most_bytes:
            words = f"an answer of {counted(self._most_bytes, 'byte')}, or more: ask for less at a time"
            raise ServerError(BAD_RESPONSE, words, http_status=answer.status, request_id=answer.request_id)
        return answer, received

    def _sleep(self, seconds: float) -> None:
        self._clock.wait_for(Signal(), Deadline.after(self._clock, seconds))

    def _words(self, what: str, error: AttemptError, attempts: int) -> str:
        status = "no answer" if error.http_status is None else f"status {error.http_status}"
        status = "not sent" if isinstance(error, CredentialsError) else status
        times = "" if attempts == 1 else f" after {attempts} attempts"
        general = _general_advice(error)
        project = self._endpoints.current
        if isinstance(error, UnauthorizedError) and self._config.sign_version == "v4":
            general += f", and whether {project.region!r} is the server's region"
        advice = self._advice.get(error.code, general) if general else ""
        where = " at ".join(filter(None, (self._where, project.config.endpoint)))
        return (
            f"{what} of {where}: {status}, {error.code}: {error.message} "
            f"(request id {error.request_id or 'none'}){times}"
            f"{'; ' if advice else ''}{advice.format(**self._names)}"
        )


class _Attempts:
    """The attempts of one request, counted by kind of error and anew at each endpoint."""

    def __init__(self, config: ProducerConfig, timeout: float | None, endpoints: Failover) -> None:
        self._timeout = math.inf if timeout is None else timeout
        # A request that fails at an endpoint gets as far as the next one.
        self._most = max(config.retries + 1, 1 if endpoints.choice is None else MOST_FAILURES)
        self._endpoints, self._at = endpoints, endpoints.current
        self._of_kind: dict[type[AttemptError], int] = {}
        self._before = self.made = 0

    def may_be_repeated(self, error: BaseException) -> bool:
        """Count the attempt; return True if its error is temporary."""
        self.made += 1
        if not isinstance(error, AttemptError):
            return False
        self._of_kind[type(error)] = self._of_kind.get(type(error), 0) + 1
        if self._at is not self._endpoints.current:
            self._at, self._before = self._endpoints.current, self.made
            self._of_kind.clear()
        # A writer retries a missing shard, which is being split. A reader got its shards from the server.
        return error.retriable and error.code != "ShardNotExist"

    def are_over(self, state: tenacity.RetryCallState) -> bool:
        """Return True after the last attempt, or if the next one would begin too late."""
        if (state.seconds_since_start or 0.0) + state.upcoming_sleep >= self._timeout:
            return True
        error = cast("AttemptError", cast("Any", state.outcome).exception())
        most = self._most if error.max_consecutive is None else min(self._most, error.max_consecutive + 1)
        return self.made - self._before >= self._most or self._of_kind.get(type(error), 0) >= most


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
    if "set this machine's clock" in error.message:
        return ""
    fitting = (
        (isinstance(error, UnauthorizedError), "check the access key, its security token and its permission to read"),
        (isinstance(error, ClockSkewError), "set this machine's clock"),
        (error.http_status is None, "check {endpoint}, and the network and proxies between here and there"),
        (error.code == BAD_RESPONSE, "check {endpoint}: a proxy, a portal or another server may have answered"),
        (error.retriable, "try again later"),
    )
    return next((words for fits, words in fitting if fits), _GENERAL)
