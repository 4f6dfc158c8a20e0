"""A client of LogHub's reading side: ListShards, GetCursor, GetCursorTime, PullLogs.

Each request is tried again, with growing and random waits, for as long as what went wrong may pass: a server that is
busy or over its quota, a connection that broke, credentials that ran out. What then is left is one error that says
what was asked, of whom, what came back, and what to do.

Source: LogHub protocol, Reading back; the official SDK for what cursors are.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote

import requests
import requests.utils
import tenacity
from google.protobuf.message import DecodeError

from ..clock import Clock, Deadline, SystemClock
from ..config import ProducerConfig
from ..credentials import Credentials
from ..errors import AttemptError, ClockSkewError, CompressionError, ServerError, UnauthorizedError
from ..pipeline.sending.retry_rules import wait_backoff
from ..sinks.http.connections import FollowedAdapter, outgoing
from ..sinks.http.failures import error_of_exception
from ..sinks.http.transport import Answer, target_of
from ..sinks.loghub.classify import error_of_answer
from ..sinks.loghub.credentials_cache import CredentialsCache
from ..wire.compression import decompress
from ..wire.schema import FramedLogGroupList
from ..wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4
from .errors import LogHubReadError
from .options import Target

_T = TypeVar("_T")

#: LogGroups in one answer, at most. Source: LogHub protocol, PullLogs.
MAX_PULL_COUNT = 1000

# A Date further away than ten years is nonsense.
_LARGEST_OFFSET_SECONDS = 10 * 366 * 86_400.0

_ADVICE = {
    "ProjectNotExist": "check the options project and endpoint: a project exists in one region",
    "LogStoreNotExist": "check the option logstore",
    "LogstoreNotExist": "check the option logstore",
    "ShardNotExist": "the shard is gone, or never was: leave it out of startingOffsets, endingOffsets and shards",
    "InvalidCursor": "the cursor is of another logstore, or older than what the logstore keeps",
    "InvalidAccessKeyId": "check the access key: the option accessKeyId, the environment or the provider",
    "MissAccessKeyId": "check the access key: the option accessKeyId, the environment or the provider",
    "ProjectForbidden": "the project's owner has to settle this",
}


@dataclass(frozen=True, slots=True)
class Pulled:
    """One answer of PullLogs.

    :ivar groups: its LogGroups, as messages of :data:`~producer.wire.schema.FramedLogGroupList`.
    :ivar cursors: the cursor of each; see :func:`cursors_of`.
    :ivar next_cursor: where to go on.
    :ivar at_end: nothing follows at this moment, or not before the end cursor.
    :ivar size: bytes of the answer, decompressed.
    """

    groups: Sequence[Any]
    cursors: Sequence[str]
    next_cursor: str
    at_end: bool
    size: int


class LogstoreClient:
    """A reader of one logstore; a context manager. One thread at a time may use it.

    :param target: the logstore, and who signs.
    :param config: the signature's version and region, ``http``, ``retries`` and its backoff; the rest is not looked at.
    """

    def __init__(self, target: Target, config: ProducerConfig | None = None, clock: Clock | None = None) -> None:
        self._target = target
        self._config = config or ProducerConfig()
        self._clock = clock or SystemClock()
        self._http = target_of(target.project.project, target.project.endpoint)
        self._credentials = CredentialsCache(target.project.credentials, self._clock, "loghub-reader-credentials")
        self._session = _session(self._config, self._http.base_url)
        self._clock_offset = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> Target:
        """The logstore, and who signs."""
        return self._target

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def list_shards(self) -> list[str]:
        """The shards, in order of their numbers: also those that a split or a merge made read-only.

        :raises LogHubReadError: the server did not say.
        """

        def numbers(answer: Any) -> list[str]:
            return [str(number) for number in sorted(int(shard["shardID"]) for shard in answer)]

        return self._json("ListShards", "", {}, numbers)

    def cursor(self, shard: str, start: str | int) -> str:
        """The cursor of the first LogGroup that the server received at ``start`` or later.

        :param start: ``begin``, ``end``, or Unix seconds.
        :raises LogHubReadError: the server did not say.
        """
        asked = {"type": "cursor", "from": str(start)}
        what = f"GetCursor of shard {shard} from {start}"
        return self._json(what, f"/{shard}", asked, lambda answer: str(answer["cursor"]))

    def cursor_time(self, shard: str, cursor: str) -> int:
        """When the server received the LogGroup at ``cursor``, Unix seconds; at the end of a shard about now.

        :raises LogHubReadError: the server did not say.
        """
        asked = {"type": "cursor_time", "cursor": cursor}
        what = f"GetCursorTime of shard {shard} at {cursor}"
        return self._json(what, f"/{shard}", asked, lambda answer: int(answer["cursor_time"]))

    def pull(self, shard: str, cursor: str, count: int, end_cursor: str | None = None) -> Pulled:
        """LogGroups from ``cursor`` on.

        :param count: at most so many, 1 to :data:`MAX_PULL_COUNT`; the server may give fewer.
        :param end_cursor: none at or behind this one.
        :raises LogHubReadError: the server did not hand them out.
        """
        asked = {"type": "log", "cursor": cursor, "count": str(count)}
        if end_cursor is not None:
            asked["end_cursor"] = end_cursor
        what = f"PullLogs of shard {shard} at {cursor}"
        return self._tried(what, lambda: self._pull(f"/{shard}", asked, end_cursor))

    def _pull(self, path: str, asked: Mapping[str, str], end_cursor: str | None) -> Pulled:
        answer, headers = self._get(path, asked)
        try:
            following = headers["x-log-cursor"]
            size = int(headers["x-log-bodyrawsize"])
            body = decompress(answer.body, headers.get("x-log-compresstype", "none"), size)
            groups = FramedLogGroupList.FromString(body).LogGroups
        except (KeyError, ValueError, CompressionError, DecodeError) as error:
            raise _senseless(answer, error) from error
        at_end = following in (asked["cursor"], end_cursor)
        return Pulled(groups, cursors_of(asked["cursor"], following, len(groups)), following, at_end, size)

    def _json(self, what: str, path: str, asked: Mapping[str, str], take: Callable[[Any], _T]) -> _T:
        def attempt() -> _T:
            answer, _ = self._get(path, asked)
            try:
                return take(json.loads(answer.body))
            except (ValueError, LookupError, TypeError) as error:
                raise _senseless(answer, error) from error

        return self._tried(what, attempt)

    def _tried(self, what: str, attempt: Callable[[], _T]) -> _T:
        """What ``attempt`` returns in the end.

        :raises LogHubReadError: its last error, in words.
        """
        attempts = _Attempts(self._config)
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

    def _get(self, path: str, asked: Mapping[str, str]) -> tuple[Answer, Mapping[str, str]]:
        """One request and its answer.

        :raises AttemptError: there was none, or it was a refusal.
        """
        credentials = self._credentials.get()
        path = f"/logstores/{self._target.logstore}/shards{path}"
        headers = self._signed(path, asked, credentials)
        url = self._http.base_url + quote(path)
        timeouts = (self._config.http.connect_timeout_ms / 1000, self._config.http.read_timeout_ms / 1000)
        with outgoing() as request:
            try:
                response = self._session.get(
                    url, params=dict(asked), headers=headers, timeout=timeouts, allow_redirects=False
                )
            except (requests.RequestException, OSError, ValueError) as error:
                raise error_of_exception(error, request.sent) from error
        answer = Answer(response.status_code, response.headers.get("x-log-requestid", ""), response.content)
        if answer.status != requests.codes.ok:
            raise self._learn(credentials, answer, response.headers)
        return answer, response.headers

    def _signed(self, path: str, asked: Mapping[str, str], credentials: Credentials) -> dict[str, str]:
        config, project = self._config, self._target.project
        headers = {
            "Host": self._http.host,
            "User-Agent": project.user_agent or config.http.user_agent,
            "Accept": "application/x-protobuf",
            "Accept-Encoding": "lz4",
            "x-log-apiversion": "0.6.0",
            "x-log-bodyrawsize": "0",
        }
        unsigned = UnsignedRequest(method="GET", path=path, params=asked, headers=headers)
        key = SigningKey(
            access_key_id=credentials.access_key_id,
            access_key_secret=credentials.access_key_secret,
            security_token=credentials.security_token,
            region=config.region,
        )
        now = datetime.fromtimestamp(self._clock.time() + self._clock_offset, UTC)
        return sign_v4(unsigned, key, now) if config.sign_version == "v4" else sign_v1(unsigned, key, now)

    def _learn(self, credentials: Credentials, answer: Answer, headers: Mapping[str, str]) -> AttemptError:
        """The error of ``answer``, after what it teaches was noted: refused credentials, the server's time."""
        error = error_of_answer(answer)
        if isinstance(error, UnauthorizedError):
            self._credentials.refused(credentials)
        elif isinstance(error, ClockSkewError):
            self._clock_offset = _offset(headers.get("Date"), self._clock.time()) or self._clock_offset
        return error

    def _sleep(self, seconds: float) -> None:
        self._clock.wait_for(SimpleQueue(), Deadline.after(self._clock, seconds))

    def _words(self, what: str, error: AttemptError, attempts: int) -> str:
        status = "no answer" if error.http_status is None else f"status {error.http_status}"
        times = "" if attempts == 1 else f" after {attempts} attempts"
        advice = _ADVICE.get(error.code) or _general_advice(error)
        return (
            f"{what} of {self._target}: {status}, {error.code}: {error.message} "
            f"(request id {error.request_id or 'none'}){times}; {advice}"
        )


class _Attempts:
    """The attempts of one request: how many there were, and whether there may be another."""

    def __init__(self, config: ProducerConfig) -> None:
        self._most = max(0, config.retries) + 1
        self._of_kind: dict[type[AttemptError], int] = {}
        self.made = 0

    def may_be_repeated(self, error: BaseException) -> bool:
        """Whether it may pass; counts it."""
        self.made += 1
        if not isinstance(error, AttemptError):
            return False
        self._of_kind[type(error)] = self._of_kind.get(type(error), 0) + 1
        # For a writer a missing shard is one that is being split; a reader was told which shards there are.
        return error.retriable and error.code != "ShardNotExist"

    def are_over(self, state: tenacity.RetryCallState) -> bool:
        """Whether there were enough of them."""
        error = cast("AttemptError", cast("Any", state.outcome).exception())
        most = self._most if error.max_consecutive is None else min(self._most, error.max_consecutive + 1)
        return self.made >= self._most or self._of_kind.get(type(error), 0) >= most


def position_of(cursor: str) -> int | None:
    """The number that a cursor is: cursors are decimal digits in base64, and grow from LogGroup to LogGroup.

    None for any other cursor; whoever asks has to do without.
    """
    try:
        digits = base64.b64decode(cursor, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return None
    return int(digits) if digits.isdigit() and len(digits) < 32 else None


def cursors_of(cursor: str, following: str, count: int) -> list[str]:
    """The cursors of ``count`` LogGroups that an answer gave for ``cursor``, whose next cursor is ``following``.

    The protocol names only the two. Where their distance is the number of LogGroups, each has the cursor of its place;
    else it is ``cursor#n``, the n-th (from 0) LogGroup from ``cursor`` on.
    """
    first, last = position_of(cursor), position_of(following)
    if first is not None and last is not None and last - first == count:
        return [base64.b64encode(str(first + index).encode()).decode() for index in range(count)]
    return [f"{cursor}#{index}" for index in range(count)]


def is_cursor(cursor: str) -> bool:
    """Whether the server knows it, rather than a place that :func:`cursors_of` describes."""
    return "#" not in cursor


def _session(config: ProducerConfig, base_url: str) -> requests.Session:
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, FollowedAdapter())
    # Without this the session would take passwords from ~/.netrc, in place of our signature. What else it takes from
    # the environment by default is taken here.
    session.trust_env = False
    proxies = config.http.proxies
    session.proxies = dict(requests.utils.get_environ_proxies(base_url) if proxies is None else proxies)
    bundle = config.http.ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    session.verify = bundle if config.http.verify else False
    return session


def _offset(date: str | None, now: float) -> float | None:
    try:
        offset = parsedate_to_datetime(date or "").timestamp() - now
    except (ValueError, OverflowError, TypeError, OSError):
        return None
    return offset if abs(offset) < _LARGEST_OFFSET_SECONDS else None


def _senseless(answer: Answer, error: Exception) -> ServerError:
    """Status 200 with something that no LogHub says, such as the page of a portal, or half an answer."""
    message = f"an answer that makes no sense: {type(error).__name__}: {error}"
    return ServerError("BadResponse", message, http_status=answer.status, request_id=answer.request_id)


def _general_advice(error: AttemptError) -> str:
    if isinstance(error, UnauthorizedError):
        return "check the access key, its security token and its permission to read"
    if isinstance(error, ClockSkewError):
        return "set this machine's clock"
    if error.http_status is None:
        return "check the option endpoint, and the network and proxies between here and there"
    if error.retriable:
        return "try again later"
    return "check the options and the access key's permissions"
