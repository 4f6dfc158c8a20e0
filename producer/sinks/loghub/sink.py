"""LogHubSink: delivers batches as PutLogs requests. Each attempt is one HTTP request, signed at that moment.

Source: LogHub protocol, PutLogs, Signatures, Error codes.
"""

from __future__ import annotations

import difflib
import math
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import unquote

from ...model.config import ProducerConfig, ProjectConfig
from ...model.credentials import Credentials
from ...model.errors import (
    AttemptError,
    ClockSkewError,
    InvalidArgumentError,
    NetworkError,
    ProjectNotConfiguredError,
    RejectedError,
    UnauthorizedError,
    UnreachableError,
)
from ...model.interfaces import Delivery, EndpointStats, Payload, Receipt, Record, SequenceId, Sink
from ...model.records import StreamKey
from ...runtime.clock import Clock, Deadline
from ...runtime.forks import Stage, watch_fork
from ...runtime.internal_threads import at_work
from ...runtime.loggers import get_logger
from ...wire.list_shards import list_shards_headers, list_shards_path
from ...wire.prepared import Prepared, PreparedV1, PreparedV4
from ...wire.put_logs import put_logs_headers, put_logs_params, put_logs_path
from ...wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4
from ..http.ca_bundle import check_authorities
from ..http.proxies import through
from ..http.server_time import clock_offset
from ..http.transport import Answer, Target, Transport, head_of, target_of
from .classify import error_of_answer, is_acknowledgement
from .codec import Codec
from .credentials.cache import CredentialsCache
from .endpoint_choice import EndpointChoice, is_outage
from .probe import question, sentence

_log = get_logger("loghub.loghub")

#: The header that tells an embedded LogHub which endpoint the producer uses, and why it is not the first.
ENDPOINT_HEADER = "x-producer-endpoint"
_PROBE_SECONDS = 5.0  # the limit of a probe
_SHOWN = 10  # the maximum number of projects in a message
_MOST_PREPARED = 1024  # the maximum number of kept requests of a project


@dataclass(slots=True, repr=False)  # proxies may hold a password
class _Project:
    """The state of a project at one endpoint; replaced as a whole when its configuration is."""

    config: ProjectConfig
    target: Target
    credentials: CredentialsCache
    proxies: Mapping[str, str]
    user_agent: str
    clock_offset: float = 0.0
    #: Prepared requests, and the credentials that sign them, by logstore and shard hash.
    prepared: dict[tuple[str, str | None], tuple[Credentials, Prepared]] = field(default_factory=dict)


@dataclass(slots=True, repr=False)
class _Endpoints:
    """A project at each of its endpoints.

    :ivar config: its configuration; that of each :class:`_Project` names one endpoint.
    :ivar choice: chooses the endpoint of each attempt; None for a single endpoint.
    """

    config: ProjectConfig
    all: tuple[_Project, ...]
    choice: EndpointChoice | None


class LogHubSink(Sink):
    """Delivers to LogHub, and keeps the projects of its producer.

    :param name: the prefix of thread names.
    :raises ConfigError: ``http.ca_bundle`` cannot be used on this machine.
    """

    def __init__(self, config: ProducerConfig, clock: Clock, name: str) -> None:
        check_authorities(config.http)
        self._config = config
        self._clock = clock
        self._name = name
        self._codec = Codec(config.log_format, config.compression, digest=config.sign_version != "v4")
        self._projects: dict[str, _Endpoints] = {}
        self._connect()
        watch_fork(self, Stage.SINKS)

    def _connect(self) -> None:
        config = self._config
        pool_size = config.http.pool_size or config.io_thread_count
        self._transport = Transport(config.http, pool_size, self._clock, self._name)
        self._lock = threading.Lock()  # guards changes of _projects

    def _renew_in_child(self) -> None:
        self._connect()
        self._projects = {name: self._renewed(known) for name, known in self._projects.items()}

    def _renewed(self, known: _Endpoints) -> _Endpoints:
        credentials = self._credentials_of(known.config)
        everywhere = tuple(replace(project, credentials=credentials) for project in known.all)
        return _Endpoints(known.config, everywhere, self._choice_of(known.config))

    def put_project(self, project: ProjectConfig) -> None:
        """Add a project, or replace its endpoints and credentials; the next attempts use them.

        :raises ConfigError: a proxy, or a setting of the environment for its requests, cannot be used.
        """
        credentials = self._credentials_of(project)
        everywhere = tuple(self._project_at(each, credentials) for each in project.at_each_endpoint())
        known = _Endpoints(project, everywhere, self._choice_of(project))
        with self._lock:
            self._projects = {**self._projects, project.project: known}

    def _project_at(self, config: ProjectConfig, credentials: CredentialsCache) -> _Project:
        target = target_of(config.project, config.endpoint)
        check_authorities(self._config.http, target.base_url)
        return _Project(
            config=config,
            target=target,
            credentials=credentials,
            proxies=self._transport.proxies_for(target.base_url),
            user_agent=config.user_agent or self._config.http.user_agent,
        )

    def _choice_of(self, config: ProjectConfig) -> EndpointChoice | None:
        if not config.endpoints:
            return None
        return EndpointChoice(config.project, config.endpoints, self._config.failover_ms / 1000)

    def _credentials_of(self, config: ProjectConfig) -> CredentialsCache:
        return CredentialsCache(config.credentials, self._clock, f"{self._name}-credentials-{config.project}")

    def remove_project(self, name: str) -> None:
        with self._lock:
            left = dict(self._projects)
            left.pop(name, None)
            self._projects = left

    def project_configs(self) -> tuple[ProjectConfig, ...]:
        return tuple(known.config for known in self._projects.values())

    def check_project(self, name: str) -> None:
        if name not in self._projects:
            raise InvalidArgumentError(unknown_project(name, self._projects))

    def destination(self, key: StreamKey) -> Hashable:
        """Return the project and its endpoints: other endpoints do not wait for the outage of the old ones.

        The endpoints of a project share a destination, which pauses only if none of them answers.
        """
        known = self._projects.get(key.project)
        if known is None:
            return key.project, None
        return key.project, ", ".join(known.config.endpoints) or known.config.endpoint

    def endpoints(self) -> tuple[EndpointStats, ...]:
        return tuple(known.choice.stats() for known in self._projects.values() if known.choice is not None)

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        return self._codec.tail_size(key, pack_id)

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        return self._codec.encode(key, pack_id, records)

    def decode(self, payload: Payload) -> list[bytes]:
        return self._codec.decode(payload)

    def write(self, delivery: Delivery) -> Receipt:
        known = self._known(delivery.key.project)
        choice = known.choice
        if choice is None:
            return self._attempt(known.all[0], delivery)
        began = self._clock.monotonic()
        self._probe_if_due(known, choice, began)
        index = choice.current
        try:
            receipt = self._attempt(known.all[index], delivery, choice.limit, choice.header)
        except AttemptError as error:
            if not is_outage(error):
                choice.answered(index)
                raise
            elsewhere = choice.failed(index, error, began, self._clock.monotonic())
            if not elsewhere or not isinstance(error, UnreachableError):
                raise
            # Not "unreachable", which would pause the destination: the next attempt goes to another endpoint.
            raise NetworkError(error.code, error.message) from error
        choice.answered(index)
        return receipt

    def _attempt(
        self, project: _Project, delivery: Delivery, patience: float = math.inf, endpoint: str = ""
    ) -> Receipt:
        """Make one attempt at one endpoint.

        :param patience: a limit on the endpoint's silence, seconds.
        :param endpoint: the text of the header about the endpoint; empty for none.
        """
        payload = delivery.payload
        credentials = project.credentials.get()
        request = self._prepared(project, credentials, delivery.key, delivery.sequence)
        head = request.head(payload.body, payload.raw_size, self._clock.time() + project.clock_offset, payload.md5)
        if endpoint:
            head += b"\r\n" + head_of({ENDPOINT_HEADER: endpoint})
        answer, headers = self._transport.send(
            "POST", project.target.base_url, request.target, head, payload.body, project.proxies, patience
        )
        if not is_acknowledgement(answer):
            raise self._learn(project, credentials, answer, headers)
        return Receipt(answer.request_id, answer.status)

    def _probe_if_due(self, known: _Endpoints, choice: EndpointChoice, now: float) -> None:
        index = choice.take_probe(now)
        if index is None:
            return
        name = f"{self._name}-probe-{known.config.project}"
        try:
            threading.Thread(target=self._probe, args=(known.all[index], choice, index), name=name, daemon=True).start()
        except RuntimeError as error:  # the interpreter is exiting, or there are too many threads
            choice.probed(index, NetworkError("RequestError", f"no thread for a probe: {error}"), now)

    def _probe(self, project: _Project, choice: EndpointChoice, index: int) -> None:
        failure: AttemptError | None = NetworkError("RequestError", "the probe raised an error")
        try:
            with at_work():
                failure, _ = self._asked(project, None, min(choice.limit, _PROBE_SECONDS), warns=False)
        finally:
            choice.probed(index, failure, self._clock.monotonic())

    def _prepared(
        self, project: _Project, credentials: Credentials, key: StreamKey, sequence: SequenceId | None
    ) -> Prepared:
        """Return the request of a batch; it is kept unless it has a sequence number, which no other batch has."""
        where = key.logstore, key.shard_hash
        known = project.prepared.get(where)
        if sequence is None and known is not None and known[0] is credentials:
            return known[1]
        config = self._config
        request = UnsignedRequest(
            method="POST",
            path=put_logs_path(key, sequence),
            params=put_logs_params(key, config.processor, sequence),
            headers=put_logs_headers(project.target.host, 0, config.compression, project.user_agent, config.log_format),
        )
        kind = PreparedV4 if config.sign_version == "v4" else PreparedV1
        prepared = kind(request, self._signing_key(credentials), head_of)
        if sequence is None:
            if len(project.prepared) >= _MOST_PREPARED:
                project.prepared.clear()
            project.prepared[where] = credentials, prepared
        return prepared

    def ask_for_shards(self, project: str, logstore: str) -> None:
        """Ask for the shards of a logstore, which changes nothing, to check that it exists and accepts the credentials.

        A key that may write need not be allowed to ask; the refusal is then ``Unauthorized``.

        :raises AttemptError: there was no answer from any endpoint, or a refusal.
        """
        *others, last = self._known(project).all
        for known in others:
            try:
                return self._ask_for_shards(known, logstore)
            except AttemptError as error:
                if not is_outage(error):
                    raise
        return self._ask_for_shards(last, logstore)

    def _ask_for_shards(self, known: _Project, logstore: str) -> None:
        headers = list_shards_headers(known.target.host, known.user_agent)
        self._ask(known, UnsignedRequest(method="GET", path=list_shards_path(logstore), params={}, headers=headers))

    def probe(self, project: str, logstore: str | None, timeout: float) -> str:
        """Make one request to each endpoint, over a connection of its own; return the findings."""
        everywhere = self._known(project).all
        found = []
        for known in everywhere:
            failure, user = self._asked(known, logstore, timeout / len(everywhere))
            found.append(sentence(failure, known.config, logstore, self._config, user))
        return "\n".join(found)

    def _asked(
        self, known: _Project, logstore: str | None, timeout: float, *, warns: bool = True
    ) -> tuple[AttemptError | None, str]:
        """Ask a signed question over a connection of its own.

        :param warns: True to warn while there is no answer.
        :returns: the error, or None for an answer; the user of an embedded LogHub, or an empty text.
        """
        limit = max(1, int(timeout * 1000))
        http = replace(
            self._config.http, connect_timeout_ms=limit, read_timeout_ms=limit, attempt_timeout_ms=limit, pool_size=1
        )
        transport = Transport(http, 1, self._clock, f"{self._name}-check", warns=warns)
        try:
            asked = question(known.target.host, known.user_agent, logstore)
            answer, headers, credentials = self._exchange(known, asked, transport)
            failure = None if is_acknowledgement(answer) else self._learn(known, credentials, answer, headers)
            return failure, headers.get("x-log-embedded-user", "")
        except AttemptError as error:
            return error, ""
        finally:
            transport.close()

    def _known(self, name: str) -> _Endpoints:
        known = self._projects.get(name)
        if known is None:
            raise ProjectNotConfiguredError("ProjectConfigNotExist", unknown_project(name, self._projects))
        return known

    def _ask(self, project: _Project, request: UnsignedRequest) -> Answer:
        """Sign and send a request, whose path is percent-encoded; return its answer unless it is a refusal."""
        answer, headers, credentials = self._exchange(project, request, self._transport)
        if is_acknowledgement(answer):
            return answer
        raise self._learn(project, credentials, answer, headers)

    def _exchange(
        self, project: _Project, request: UnsignedRequest, transport: Transport
    ) -> tuple[Answer, Mapping[str, str], Credentials]:
        credentials = project.credentials.get()
        headers = self._sign(project, credentials, replace(request, path=unquote(request.path)))
        answer, answer_headers = transport.request(
            request.method,
            project.target.base_url,
            request.path,
            request.params,
            headers,
            request.body,
            project.proxies,
        )
        return answer, answer_headers, credentials

    def _signing_key(self, credentials: Credentials) -> SigningKey:
        return SigningKey(
            access_key_id=credentials.access_key_id,
            access_key_secret=credentials.access_key_secret,
            security_token=credentials.security_token,
            region=self._config.region,
        )

    def _sign(self, project: _Project, credentials: Credentials, unsigned: UnsignedRequest) -> dict[str, str]:
        key = self._signing_key(credentials)
        now = datetime.fromtimestamp(self._clock.time() + project.clock_offset, UTC)
        return sign_v4(unsigned, key, now) if self._config.sign_version == "v4" else sign_v1(unsigned, key, now)

    def _learn(
        self, project: _Project, credentials: Credentials, answer: Answer, headers: Mapping[str, str]
    ) -> AttemptError:
        """Return the error of ``answer``; note refused credentials and the server's time first."""
        error = error_of_answer(answer, headers, through(project.target.base_url, project.proxies))
        if isinstance(error, UnauthorizedError):
            project.credentials.refused(credentials)
        elif isinstance(error, ClockSkewError):
            date = headers.get("Date")
            offset = clock_offset(date, self._clock.time())
            if offset is None:
                reason = f"its Date is invalid: {date!r}" if date else "the answer has no Date"
                return RejectedError(
                    error.code,
                    f"{error.message} (the server's time is unknown: {reason}; set this machine's clock)",
                    http_status=error.http_status,
                    request_id=error.request_id,
                )
            _log.warning(
                "%s: this machine's clock is %.0f s %s the server's: requests are corrected, logs keep this machine's "
                "time; set the clock",
                project.config.project,
                abs(offset),
                "behind" if offset > 0 else "ahead of",
            )
            project.clock_offset = offset
        return error

    def hurry(self, deadline: Deadline) -> None:
        """Shut down the connections at the deadline."""
        self._transport.hurry(deadline)

    def close(self) -> None:
        self._transport.close()


def unknown_project(name: str, known: Iterable[str]) -> str:
    """Return the message about a project without a configuration."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names[:_SHOWN])}" if names else "it has none"
    return f"the producer has no ProjectConfig for {name!r} ({hint}): pass one, or call put_project_config"
